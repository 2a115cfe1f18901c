"""``autotrace-run python vllm_cost.py MODEL ROUNDS RESULT``: see ``cost``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cost import REQUESTS, TOKENS, added, take_turns


async def main(model: str, rounds: str, result: str) -> None:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import OutputProcessor

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=model, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=REQUESTS,
            max_num_batched_tokens=4096, enable_prefix_caching=False, disable_log_stats=True,
        )
    )  # fmt: skip

    async def request(request_id: str, number: int) -> int:
        params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
        prompt: Any = {"prompt_token_ids": [5 + (number + place) % 500 for place in range(64)]}
        return len([None async for _ in engine.generate(prompt, params, request_id)])

    methods = [(AsyncLLM, "generate"), (OutputProcessor, "add_request"), (OutputProcessor, "process_outputs")]
    try:
        found = await take_turns(methods, request, int(rounds))
    finally:
        engine.shutdown()
    Path(result).write_text(json.dumps({**found, "step": in_a_step()}))


def in_a_step() -> dict[str, float]:
    """Of what runs once a step in the engine core, the seconds that it adds."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore

    nothing_new = SimpleNamespace(scheduled_new_reqs=[])
    return {
        "EngineCore.step": added(EngineCore.step, None),
        "Scheduler.schedule": added(Scheduler.schedule, SimpleNamespace(), result=nothing_new),
    }


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
