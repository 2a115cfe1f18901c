"""One ``AsyncLLM`` and every way a request can come and go.

``autotrace-run --spec agents.yaml python vllm_async.py MODEL RESULT``

RESULT is what the program itself saw, as JSON: request id -> token ids and how it ended.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

from agents import conversation

QUESTION = [746, 312, 223, 19, 735, 223, 20, 33]


async def read(engine: Any, request_id: str, kind: str = "CUMULATIVE", **options: Any) -> dict[str, Any]:
    """Read a whole stream; token ids are joined the way its kind of output asks for."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    prompt = options.pop("prompt", {"prompt_token_ids": QUESTION})
    given = {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True, **options}
    params = SamplingParams(output_kind=RequestOutputKind[kind], **given)
    ids: list[int] = []
    chunks = 0
    last = None
    async for last in engine.generate(prompt, params, request_id):
        chunks += 1
        new = list(last.outputs[0].token_ids)
        ids = ids + new if kind == "DELTA" else new
    return {
        "prompt_ids": list(last.prompt_token_ids),
        "response_ids": ids,
        "chunks": chunks,
        "finish_reason": last.outputs[0].finish_reason,
    }


async def agent(engine: Any, uid: str) -> list[dict[str, Any]]:
    """Two turns, the second with what the first said."""
    said: list[int] = QUESTION

    async def turn(number: int) -> dict[str, Any]:
        nonlocal said
        outcome = await read(engine, f"{uid}-{number}", prompt={"prompt_token_ids": said})
        said = [*outcome["prompt_ids"], *outcome["response_ids"], 5, 6, 7]
        return outcome

    return await conversation(turn, uid=uid)


async def cancelled(engine: Any, request_id: str) -> None:
    """The task that reads the stream is cancelled."""
    started = asyncio.Event()

    async def use() -> None:
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
        async for _ in engine.generate({"prompt_token_ids": QUESTION}, params, request_id):
            started.set()

    task = asyncio.create_task(use())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def dropped(engine: Any, request_id: str) -> None:
    """The stream is let go of after one chunk."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
    stream = engine.generate({"prompt_token_ids": QUESTION}, params, request_id)
    await stream.__anext__()
    del stream
    gc.collect()
    while engine.output_processor.has_unfinished_requests():
        await asyncio.sleep(0.01)


async def aborted(engine: Any, request_id: str) -> dict[str, Any]:
    """Somebody else aborts the request by its id."""
    reading = asyncio.create_task(read(engine, request_id, max_tokens=200))
    while not engine.output_processor.has_unfinished_requests():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    await engine.abort(request_id)
    return await reading


async def paused(engine: Any, request_id: str) -> dict[str, Any]:
    """The engine is paused for a weight sync, which aborts what runs; what is asked meanwhile waits for its end."""
    reading = asyncio.create_task(read(engine, request_id, max_tokens=200))
    while not engine.output_processor.has_unfinished_requests():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    await engine.pause_generation(mode="abort")
    outcome = await reading
    waiting = asyncio.create_task(read(engine, f"{request_id}-after"))
    await asyncio.sleep(0.1)
    await engine.resume_generation()
    return {**outcome, "after": await waiting}


async def main(model: str, result: str) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        block_size=16,
        num_gpu_blocks_override=33,  # two long requests fill it: the third preempts
        enable_prefix_caching=True,
        disable_log_stats=True,  # veRL's default
    )
    engine = AsyncLLM.from_engine_args(arguments)
    found: dict[str, Any] = {}
    try:
        for kind in ("CUMULATIVE", "DELTA", "FINAL_ONLY"):
            found[kind] = await read(engine, kind, kind)
        found["text"] = await read(engine, "text", prompt="What is 3 plus 4?")
        found["agent"] = await agent(engine, "agent")
        await cancelled(engine, "cancelled")
        await dropped(engine, "dropped")
        found["aborted"] = await aborted(engine, "aborted")
        found["paused"] = await paused(engine, "paused")
        found["refused"] = "nothing"
        try:
            await read(engine, "refused", prompt={"prompt_token_ids": [5] * 300})
        except Exception as error:
            found["refused"] = type(error).__name__
        await engine.reset_prefix_cache()
        crowd = await asyncio.gather(*(read(engine, f"crowd-{n}", max_tokens=200) for n in range(4)))
        found.update({f"crowd-{number}": outcome for number, outcome in enumerate(crowd)})
        found["samples"] = await read(engine, "samples", n=2, temperature=1.0)
    finally:
        engine.shutdown()
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
