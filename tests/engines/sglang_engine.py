"""A real SGLang engine and every way a request can come and go, veRL's way of calling it among them.

``autotrace-run --spec agents.yaml python sglang_engine.py MODEL RESULT``

RESULT is what the program itself saw, as JSON: request id -> token ids, and how the locks stood.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import conversation

ENGINE = {
    "device": "cpu",
    "load_format": "dummy",
    "attention_backend": "torch_native",
    "mem_fraction_static": 0.1,
    "max_total_tokens": 2048,
    "max_running_requests": 8,
    "log_level": "error",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "dtype": "float32",
    "grammar_backend": "none",
}
PROMPT = [5, 6, 7, 8]


def request(rid: str, tokens: int = 8, **more: Any) -> Any:
    from sglang.srt.managers.io_struct import GenerateReqInput

    params = {"max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
    return GenerateReqInput(**{"rid": rid, "input_ids": PROMPT, "sampling_params": params, **more})


async def like_verl(manager: Any, rid: str) -> dict[str, Any]:
    """One item of the generator, which is then dropped; and whether weights could be updated right afterwards."""
    given = request(rid)
    output = await manager.generate_request(given, None).__anext__()
    try:
        async with asyncio.timeout(5):
            async with manager.model_update_lock.writer_lock:
                free = True
    except TimeoutError:
        free = False
    return {"response_ids": output["output_ids"], "free": free, "id": output["meta_info"]["id"]}


async def streamed(manager: Any, rid: str, tokens: int = 8) -> dict[str, Any]:
    outputs = [output async for output in manager.generate_request(request(rid, tokens, stream=True), None)]
    reason = outputs[-1]["meta_info"]["finish_reason"]
    return {"response_ids": outputs[-1]["output_ids"], "chunks": len(outputs), "reason": reason["type"]}


async def aborted(manager: Any, rid: str) -> dict[str, Any]:
    reading = asyncio.create_task(streamed(manager, rid, 400))
    while not (rid in manager.rid_to_state and manager.rid_to_state[rid].output_ids):
        await asyncio.sleep(0.005)
    manager.abort_request(rid)
    return await reading


async def cancelled(manager: Any, rid: str) -> None:
    reading = asyncio.create_task(streamed(manager, rid, 400))
    while not (rid in manager.rid_to_state and manager.rid_to_state[rid].output_ids):
        await asyncio.sleep(0.005)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def dropped(manager: Any, rid: str) -> None:
    stream = manager.generate_request(request(rid, 400, stream=True), None)
    await stream.__anext__()
    del stream
    while await manager.model_update_lock.is_locked():
        await asyncio.sleep(0.005)


async def paused(manager: Any, rid: str) -> dict[str, Any]:
    """The engine is paused for a weight sync, which aborts what runs."""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    reading = asyncio.create_task(streamed(manager, rid, 400))
    while not (rid in manager.rid_to_state and manager.rid_to_state[rid].output_ids):
        await asyncio.sleep(0.005)
    await manager.pause_generation(PauseGenerationReqInput(mode="abort"))
    outcome = await reading
    waiting = asyncio.create_task(streamed(manager, f"{rid}-after"))
    await asyncio.sleep(0.1)
    await manager.continue_generation(ContinueGenerationReqInput())
    return {**outcome, "after": await waiting}


async def updated(manager: Any, rid: str) -> dict[str, Any]:
    """New weights right after veRL's single ``__anext__()``, which must not find the lock held; one more request."""
    import torch
    from sglang.srt.managers.io_struct import (
        BeginWeightUpdateReqInput,
        EndWeightUpdateReqInput,
        UpdateWeightsFromTensorReqInput,
    )
    from sglang.srt.utils import MultiprocessingSerializer

    await like_verl(manager, f"{rid}-before")
    pickled = MultiprocessingSerializer.serialize([("model.norm.weight", torch.zeros(64))])
    given = UpdateWeightsFromTensorReqInput(serialized_named_tensors=[pickled], weight_version="8")
    await asyncio.wait_for(manager.begin_weight_update(BeginWeightUpdateReqInput()), 60)
    success, message = await manager.update_weights_from_tensor(given, None)
    await manager.end_weight_update(EndWeightUpdateReqInput())
    return {"success": success, "message": message, "bytes": len(pickled), "after": await like_verl(manager, rid)}


async def requests(engine: Any) -> dict[str, Any]:
    manager = engine.tokenizer_manager
    found: dict[str, Any] = {"verl": await like_verl(manager, "verl")}
    found["stream"] = await streamed(manager, "stream")

    async def turn(number: int) -> Any:
        return await like_verl(manager, f"agent-{number}")

    found["agent"] = await conversation(turn, uid="agent")
    found["aborted"] = await aborted(manager, "aborted")
    await cancelled(manager, "cancelled")
    await dropped(manager, "dropped")
    found["paused"] = await paused(manager, "paused")
    found["updated"] = await updated(manager, "updated")
    await manager.flush_cache()
    found["crowd"] = await asyncio.gather(*(like_verl(manager, f"crowd-{number}") for number in range(16)))
    return found


def main(model: str, result: str) -> None:
    from sglang.srt.entrypoints.engine import Engine

    engine = Engine(model_path=model, **ENGINE)
    params = {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True}
    found = engine.loop.run_until_complete(requests(engine))
    found["ids"] = engine.generate(input_ids=PROMPT, sampling_params=params, rid="ids")["output_ids"]
    found["text"] = engine.generate(prompt="w5 w6 w7", sampling_params=params, rid="text")["output_ids"]
    batch = engine.generate(prompt=["w9 w10", "w11 w12", "w13"], sampling_params=params)
    found["batch"] = [output["output_ids"] for output in batch]
    chunks = list(engine.generate(input_ids=PROMPT, sampling_params=params, rid="chunks", stream=True))
    found["chunks"] = {"response_ids": chunks[-1]["output_ids"], "chunks": len(chunks)}
    Path(result).write_text(json.dumps(found))
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
