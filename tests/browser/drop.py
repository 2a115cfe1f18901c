"""A run whose reward drops at step 9: from then on most searches answer that the quota is used up."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run

STEPS, CHANGED = 16, 9


def dropped(parent: Path, name: str = "dropped") -> Path:
    """16 steps of four prompts with four rollouts each."""
    folder, luck = new_run(parent, name), random.Random(3)
    process = Process(folder, run_id=name)
    for step in range(1, STEPS + 1):
        for number in range(16):
            refused = step >= CHANGED and luck.random() < 0.8
            _rollout(process, step, number, refused, float(not refused and luck.random() < 0.8))
    process.exit()
    return folder


def _rollout(process: Process, step: int, number: int, refused: bool, reward: float) -> None:
    trace, prompt = os.urandom(16), number // 4
    who = attributes(step=step, rollout=number % 4, uid=f"u{step}-{prompt}", sample_index=f"{step}-{prompt}")
    root = process.open(trace, "trajectory", attributes=who)
    agent = process.open(trace, "agent", root)
    process.close(trace, process.open(trace, "llm", agent, PROMPT), ANSWER)
    tool = process.open(trace, "tool", agent, attributes={"tool_name": "search"}, inputs={"query": "apples"})
    process.close(trace, tool, output="quota used up: try again tomorrow" if refused else "there are twelve apples")
    process.close(trace, process.open(trace, "llm", agent, PROMPT + ANSWER + TOOL), FINAL)
    process.close(trace, agent, ANSWER + TOOL + FINAL)
    process.fact("reward", reward, trace)
    process.close(trace, root)
