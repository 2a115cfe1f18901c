"""vLLM without a server: a batch of prompts through ``LLM.generate``, two conversations through ``LLM.chat``.

autotrace-run python vllm_offline.py MODEL RESULT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(model: str, result: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=2)
    params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    outputs = llm.generate(["What is 1 plus 2?", "What is 3 plus 4?", {"prompt_token_ids": [5, 6, 7]}], params)
    outputs += llm.chat(
        [[{"role": "user", "content": "What is 2 plus 2?"}], [{"role": "user", "content": "What is 0 plus 1?"}]], params
    )
    found = [
        {"prompt_ids": list(output.prompt_token_ids), "response_ids": list(output.outputs[0].token_ids)}
        for output in outputs
    ]
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
