"""vLLM plugin (``vllm.general_plugins``, loaded in every vLLM process) for the end-to-end test.

It keeps plain torch weights, so that veRL's in-place weight sync works on the CPU (oneDNN repacking removes
``layer.weight``), and it is the test's own witness: what the engine was asked and what it answered goes to
``$E2E_ENGINE_LOG/PID.jsonl``, without any help of autotrace.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def register() -> None:
    """Entry point; vLLM calls it once per process, some releases more often."""
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False
    if os.environ.get("E2E_ENGINE_LOG"):
        _record(Path(os.environ["E2E_ENGINE_LOG"], f"{os.getpid()}.jsonl"))


def _record(path: Path) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    if hasattr(AsyncLLM, "_e2e_generate"):
        return
    AsyncLLM._e2e_generate = original = AsyncLLM.generate

    async def generate(self, prompt, sampling_params, request_id, *args, **kwargs):
        final = None
        async for output in original(self, prompt, sampling_params, request_id, *args, **kwargs):
            final = output
            yield output
        if final is not None:
            entry = {
                "request_id": request_id,
                "prompt_ids": list(prompt["prompt_token_ids"]),
                "output_ids": list(final.outputs[0].token_ids),
            }
            with path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")

    AsyncLLM.generate = generate
