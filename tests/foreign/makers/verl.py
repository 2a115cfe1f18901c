"""veRL 0.9.1: the dumps of both its trainers."""

from __future__ import annotations

import sys

from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.v1 import trainer_base

SYSTEM = "system\nYou add.\nuser\n"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
PROMPTS = [f"{SYSTEM}What is 1 plus 2?\nassistant\n"] * 2 + [f"{SYSTEM}What is 2 plus 2?\nassistant\n"] * 2
ANSWERS = [
    f"I ask.\n{CALL}\nuser\n<tool_response>\n3\n</tool_response>\nassistant\nIt is 3.",
    f"{CALL}\nuser\n<tool_response>\nError: the service is unavailable\n</tool_response>\nassistant\nI do not know.",
    "It is 4.",
    "It is 5.",
]


def main(folder: str) -> None:
    truths, scores = ["3", "3", "4", "4"], [1.0, 0.0, 1.0, float("nan")]
    parts = {"acc": [True, False, True, False], "request_id": ["r0", "r1", "r2", "r3"]}
    for step in (1, 2, 10):
        RayPPOTrainer._write_generations(PROMPTS, ANSWERS, truths, scores, parts, f"{folder}/first", step)
    keys = {"uid": ["a_b_0_0", "a_b_1_0", "c_0_0", "c_1_0"]}
    (trainer,) = (
        one for one in vars(trainer_base).values() if isinstance(one, type) and "_write_generations" in vars(one)
    )
    trainer._write_generations(PROMPTS, ANSWERS, truths, scores, keys, f"{folder}/second", 1)
    trainer._write_generations(PROMPTS, ANSWERS, truths, scores, keys, f"{folder}/second/validation", 1)


if __name__ == "__main__":
    main(sys.argv[1])
