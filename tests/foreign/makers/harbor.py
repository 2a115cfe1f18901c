"""Harbor 0.25: its own models of ATIF 1.8, written as its agents write them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harbor.models.trajectories import (
    Agent,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)

PROMPT, ANSWER, RESULT, LAST = [1, 2, 3], [4, 5], [6, 7], [8, 9, 10]


def main(folder: str) -> None:
    called = ToolCall(tool_call_id="c1", function_name="add", arguments={"a": 1, "b": 2})
    steps = [
        Step(step_id=1, timestamp="2026-08-01T10:00:00Z", source="system", message="You add."),
        Step(step_id=2, timestamp="2026-08-01T10:00:00Z", source="user", message="What is 1 plus 2?"),
        Step(
            step_id=3, timestamp="2026-08-01T10:00:01Z", source="agent", message="", reasoning_content="I ask.",
            tool_calls=[called],
            observation=Observation(results=[ObservationResult(source_call_id="c1", content="3")]),
            metrics=Metrics(prompt_tokens=3, completion_tokens=2, prompt_token_ids=PROMPT, completion_token_ids=ANSWER,
                            logprobs=[-0.5, -0.25]),
        ),
        Step(
            step_id=4, timestamp="2026-08-01T10:00:04Z", source="agent", message="It is 3.",
            metrics=Metrics(prompt_tokens=7, completion_tokens=3, prompt_token_ids=[*PROMPT, *ANSWER, *RESULT],
                            completion_token_ids=LAST, logprobs=[-0.5] * 3),
        ),
    ]  # fmt: skip
    agent = Agent(name="adder", version="1", model_name="tiny")
    whole = Trajectory(session_id="s", trajectory_id="t", agent=agent, steps=steps)
    path = Path(folder, "trial", "agent")
    path.mkdir(parents=True)
    (path / "trajectory.json").write_text(json.dumps(whole.to_json_dict(), indent=2))


if __name__ == "__main__":
    main(sys.argv[1])
