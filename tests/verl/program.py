"""In-process veRL for the tests beside it: ``program.py MODE LABEL OUT.json``.

Every question carries the label and a number of its own, so a mixed-up trajectory shows. ``OUT.json`` gets what the
engine saw and said.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES / "verl_loop"), str(EXAMPLES / "custom_agent_loop"), str(HERE)]
import in_process  # noqa: E402

MODE, LABEL, OUT = sys.argv[1:4]
N = 4
ROLLOUT = itertools.count()


def script(conversation: str, turn: int) -> str:
    """Call the tool with the question's own number, then answer with the tool's result and something unique."""
    number = re.search(r"number (\d+)", conversation)
    assert number is not None
    if turn == 0:
        call = {"name": "hang" if MODE == "hang" else "double", "arguments": {"number": int(number[1])}}
        return f"I am rollout {next(ROLLOUT)}. <tool_call>{json.dumps(call)}</tool_call>"
    return f"#### {2 * int(number[1])}"


def prompts(first: int, count: int, step: int, **more: Any) -> list[dict[str, Any]]:
    """``count`` prompts; uids are the same in every process, as in a resumed run with fixed seeds."""
    return [
        {
            "question": f"[{LABEL}] What is twice the number {number}?",
            "answer": str(2 * number),
            "uid": f"step{step}-sample{number}",
            "index": number,
            **more,
        }
        for number in range(first, first + count)
    ]


async def classic(agents: Any) -> None:
    """Three training batches and a validation batch at once: 20 + 20 + 12 + 12 = 64 trajectories (V0)."""
    await asyncio.gather(
        in_process.rollout(agents, prompts(100, 5, 1), N, 1),
        in_process.rollout(agents, prompts(200, 5, 2), N, 2),
        in_process.rollout(agents, prompts(300, 3, 3), N, 3),
        in_process.rollout(agents, prompts(400, 12, 2), 1, 2, validate=True),
    )


async def v1(agents: Any) -> None:
    """The same on the V1 path, where the worker repeats each prompt itself."""
    await asyncio.gather(
        in_process.rollout_v1(agents, prompts(100, 5, 1), 1),
        in_process.rollout_v1(agents, prompts(200, 5, 2), 2),
        in_process.rollout_v1(agents, prompts(300, 3, 3), 3),
        in_process.rollout_v1(agents, prompts(400, 12, 2), 2, validate=True),
    )


async def own_loop(agents: Any) -> None:
    """The user's own agent, and the same group a second time in one process."""
    for _ in range(2):
        await in_process.rollout(agents, prompts(500, 2, 1, agent_name="debate"), N, 1)


async def hang(agents: Any) -> None:
    """A trajectory whose tool never returns."""
    await in_process.rollout(agents, prompts(700, 1, 1), 1, 1)


async def main(folder: Path) -> None:
    """Run the mode and write down what the engine saw."""
    if MODE == "v1":
        in_process.Store().install()
    tokenizer = in_process.make_model(folder)
    config = in_process.configuration(
        folder,
        [
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={HERE / 'tools.py'}",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={EXAMPLES / 'custom_agent_loop/agent_loops.yaml'}",
            f"reward.custom_reward_function.path={EXAMPLES / 'verl_loop/reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={N}",
            "actor_rollout_ref.rollout.val_kwargs.n=1",
            "trainer.project_name=in-process",
            "trainer.experiment_name=same-name",
        ],
    )
    server = in_process.ScriptedServer(tokenizer, script, seconds=0.01)
    agents = (in_process.worker_v1 if MODE == "v1" else in_process.worker)(config, server)
    await {"classic": classic, "v1": v1, "own_loop": own_loop, "hang": hang}[MODE](agents)
    Path(OUT).write_text(json.dumps({"calls": server.calls, "pid": os.getpid()}))


if __name__ == "__main__":
    asyncio.run(main(Path(OUT).parent / "model"))
