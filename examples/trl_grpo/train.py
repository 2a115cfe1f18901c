"""TRL's GRPOTrainer with two tools, on a CPU: 2 prompts x 4 generations, 2 steps. Nothing in it knows of autotrace.

    pip install trl datasets jmespath
    autotrace-run python examples/trl_grpo/train.py [MODEL]

Without MODEL it makes a tiny one first, which has learnt to call the tool (half a minute).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tools import add, is_correct, subtract, used_a_tool


def main(model: str) -> None:
    """Train for two steps."""
    sums = [(a, b) for a in range(5) for b in range(5)]
    data = Dataset.from_dict(
        {
            "prompt": [[{"role": "user", "content": f"What is {a} plus {b}?"}] for a, b in sums],
            "answer": [a + b for a, b in sums],
            "id": [f"{a}+{b}" for a, b in sums],
        }
    )
    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="grpo-"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=96,
        max_steps=2,
        learning_rate=1e-4,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[is_correct, used_a_tool],
        args=arguments,
        train_dataset=data,
        tools=[add, subtract],
    )
    trainer.train()
    print(f"trained for {trainer.state.global_step} steps")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import tiny_model

        folder = Path(tempfile.mkdtemp(prefix="tiny-model-"))
        tiny_model.make(folder)
        main(str(folder))
