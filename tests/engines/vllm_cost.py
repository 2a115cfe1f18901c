"""``autotrace-run python vllm_cost.py MODEL LIVE REPLAYED RESULT``: see ``cost``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cost import REQUESTS, TOKENS, added, one_round, take_turns


class Replay:
    """An engine core that, once it has seen a round, answers each further one as the real one did."""

    def __init__(self, core: Any) -> None:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self._core = core
        self._encode, self._decode = MsgpackEncoder().encode, MsgpackDecoder(EngineCoreOutputs).decode
        self._steps: list[Any] = []
        self._recorded: list[str] = []
        self._asked: list[str] = []
        self._ready = asyncio.Event()
        self._left: list[Any] = []
        self._names: dict[str, str] = {}
        self.replaying = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    async def add_request_async(self, request: Any) -> None:
        if not self.replaying:
            self._recorded.append(request.request_id)
            await self._core.add_request_async(request)
            return
        self._asked.append(request.request_id)
        if len(self._asked) == len(self._recorded):
            self._ready.set()

    async def get_output_async(self) -> Any:
        if not self.replaying:
            outputs = await self._core.get_output_async()
            self._steps.append(self._encode(outputs))
            return outputs
        if not self._left:
            await self._ready.wait()
            self._ready.clear()
            self._left = self._steps[::-1]
            self._names, self._asked = dict(zip(self._recorded, self._asked, strict=True)), []
        for _ in range(2):  # whoever waits for the step before reads it first
            await asyncio.sleep(0)
        outputs = self._decode(self._left.pop())
        outputs.timestamp = time.monotonic()
        for output in outputs.outputs:
            output.request_id = self._names[output.request_id]
        return outputs


async def main(model: str, live: str, replayed: str, result: str) -> None:
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
    core = engine.engine_core
    replay = Replay(core)
    try:
        found = {"live": await take_turns(methods, request, int(live), "live")}
        _use(engine, replay)
        await one_round(request, "seen")
        replay.replaying = True
        _use(engine, replay)
        found["replayed"] = await take_turns(methods, request, int(replayed), "replayed")
    finally:
        engine.engine_core = core
        engine.shutdown()
    Path(result).write_text(json.dumps({**found, "step": in_a_step()}))


def _use(engine: Any, core: Replay) -> None:
    """The next request starts the task that waits for outputs anew, with this core."""
    engine.output_handler.cancel()
    engine.output_handler = None
    engine.engine_core = core


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
