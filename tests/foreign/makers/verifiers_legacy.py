"""verifiers 0.2.1: ``save_outputs`` of states as a ``ToolEnv`` leaves them."""

from __future__ import annotations

import sys
from pathlib import Path

import verifiers as vf
from verifiers.types import RolloutTiming, State
from verifiers.utils.save_utils import save_outputs, state_to_output

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


def main(folder: str) -> None:
    outputs = []
    for number in range(4):
        state = State()
        state.update(
            example_id=number // 2, task="sums", prompt=[{"role": "user", "content": "What is 1 plus 2?"}],
            completion=[
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "3"},
                {"role": "assistant", "content": "It is 3."},
            ],
            answer="3", info={}, reward=float(number % 2), metrics={"correct": float(number % 2)},
            timing=RolloutTiming(start_time=1.7e9), is_completed=True, is_truncated=number == 3,
            error=vf.errors.ToolCallError("no answer") if number == 2 else None, trajectory=[],
        )  # fmt: skip
        outputs.append(state_to_output(state))
    save_outputs(outputs, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
