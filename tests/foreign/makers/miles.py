"""Miles at 31f1ca9: its ``save_debug_rollout_data``, with and without arrays of numpy, and the conversations beside
them. With a checkout in ``PYTHONPATH``."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy
from miles.ray.rollout.debug_data import save_debug_rollout_data
from miles.utils.types import Sample

MESSAGES = [
    {"role": "user", "content": "What is 1 plus 2?"},
    {"role": "assistant", "content": "It is 3."},
]


def main(folder: str) -> None:
    for step, experts in ((1, None), (2, numpy.zeros((4, 1, 1), dtype=numpy.int32))):
        one = Sample(
            group_index=0, index=7, prompt="What is 1 plus 2?", tokens=[1, 2, 3, 4, 5], response="It is 3.",
            response_length=3, rollout_log_probs=[-0.5] * 3, reward=1.0, status=Sample.Status.COMPLETED,
            metadata={"messages": MESSAGES}, rollout_routed_experts=experts,
        )  # fmt: skip
        args = SimpleNamespace(
            save_debug_rollout_data=f"{folder}/{'plain' if experts is None else 'experts'}/{{rollout_id}}.pt",
            save_debug_trajectory_data=f"{folder}/trajectories/{{rollout_id}}.jsonl",
        )
        save_debug_rollout_data(args, [one], rollout_id=step, evaluation=False)


if __name__ == "__main__":
    main(sys.argv[1])
