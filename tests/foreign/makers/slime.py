"""slime at 624b824: samples by its own ``append_response_tokens``, saved by its own ``save_debug_rollout_data``. With a
checkout in ``PYTHONPATH``: on the index, ``slime`` is another project."""

from __future__ import annotations

import sys

from slime.observability.rollout_data_utils import save_debug_rollout_data
from slime.utils.types import Sample

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>\n'
RESULT = "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n"


def sample(number: int) -> Sample:
    prompt = "<|im_start|>user\nWhat is 1 plus 2?<|im_end|>\n<|im_start|>assistant\n"
    one = Sample(group_index=0, index=number, prompt=prompt, label="3", tokens=list(range(10, 20)))
    one.append_response_tokens(tokens=range(100, 120), log_probs=[-0.5] * 20, text=CALL)
    one.append_response_tokens(tokens=range(200, 212), trainable=False, text=RESULT)
    ended = {"finish_reason": {"type": "stop" if number else "length"}, "weight_version": "3"}
    one.append_response_tokens(
        tokens=range(300, 310), log_probs=[-0.25] * 10, text="It is 3.<|im_end|>", meta_info=ended
    )
    one.reward = float(number)
    return one


def main(folder: str) -> None:
    samples = [sample(number) for number in range(2)]
    path = f"{folder}/{{rollout_id}}.pt"
    save_debug_rollout_data(path, samples, rollout_id=5, evaluation=False)
    save_debug_rollout_data(path, {"sums": {"samples": samples}}, rollout_id=5, evaluation=True)


if __name__ == "__main__":
    main(sys.argv[1])
