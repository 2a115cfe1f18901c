"""What tracing costs on the engine's event loop: rounds with and without it take turns on one real engine.

``autotrace-run python vllm_cost.py MODEL ROUNDS RESULT``

Each round is 64 concurrent requests of 64 tokens. Without: the original methods are put back for it. The result has
the CPU seconds of the loop's thread and of the process, and the wall-clock seconds of each round.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

REQUESTS, TOKENS = 64, 64


def methods() -> list[tuple[Any, str]]:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import OutputProcessor

    return [(AsyncLLM, "generate"), (OutputProcessor, "add_request"), (OutputProcessor, "process_outputs")]


async def request(engine: Any, request_id: str, number: int) -> int:
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    prompt = {"prompt_token_ids": [5 + (number + place) % 500 for place in range(64)]}
    chunks = 0
    async for _ in engine.generate(prompt, params, request_id):
        chunks += 1
    return chunks


async def round_of(engine: Any, name: str) -> dict[str, float]:
    began = time.perf_counter(), time.thread_time(), time.process_time()
    chunks = await asyncio.gather(*(request(engine, f"{name}-{number}", number) for number in range(REQUESTS)))
    ended = time.perf_counter(), time.thread_time(), time.process_time()
    wall, thread, process = (after - before for before, after in zip(began, ended, strict=True))
    return {"wall": wall, "thread": thread, "process": process, "chunks": sum(chunks)}


async def main(model: str, rounds: str, result: str) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=model, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=REQUESTS,
            max_num_batched_tokens=4096, enable_prefix_caching=False, disable_log_stats=True,
        )
    )  # fmt: skip
    traced = [(owner, name, owner.__dict__[name]) for owner, name in methods()]
    found: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    try:
        await round_of(engine, "warm")
        for number in range(int(rounds)):
            for kind in ("with", "without") if number % 2 else ("without", "with"):
                for owner, name, wrapper in traced:
                    setattr(owner, name, wrapper if kind == "with" else wrapper.__wrapped__)
                await asyncio.sleep(0.5)  # the flusher has written the round before
                found[kind].append(await round_of(engine, f"{kind}-{number}"))
    finally:
        for owner, name, wrapper in traced:
            setattr(owner, name, wrapper)
        engine.shutdown()
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
