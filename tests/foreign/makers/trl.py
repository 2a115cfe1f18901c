"""TRL 1.16: ``GRPOTrainer.log`` with what a step left in it; the model and the accelerator are stand-ins."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from types import SimpleNamespace

from transformers import Trainer
from trl.trainer.grpo_trainer import GRPOTrainer


class Stand(GRPOTrainer):  # type: ignore[misc]
    """A trainer of which nothing was set up but what ``log`` reads."""

    def __init__(self, folder: str, step: int) -> None:
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(is_main_process=True)
        self.state = SimpleNamespace(global_step=step)
        self.args = SimpleNamespace(report_to=[], output_dir=folder)
        self.log_completions, self.num_completions_to_print, self.log_unique_prompts = True, 0, False
        self._metrics = {"train": defaultdict(list)}
        call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
        self._logs = {
            "images": [],
            "prompt": [[{"role": "user", "content": "What is 1 plus 2?"}]] * 2,
            "completion": [
                [
                    {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "name": "add", "content": "3"},
                    {"role": "assistant", "content": "It is 3."},
                ],
                [{"role": "assistant", "content": "It is 4."}],
            ],
            "rewards": {"correct": [1.0, 0.0], "format": [0.5, float("nan")]},
            "advantages": [1.0, -1.0],
            "extra": {},
        }


def main(folder: str) -> None:
    os.makedirs(f"{folder}/completions")
    Trainer.log = lambda *arguments, **named: None
    for step in (1, 2):
        Stand(folder, step).log({"loss": 1.0})


if __name__ == "__main__":
    main(sys.argv[1])
