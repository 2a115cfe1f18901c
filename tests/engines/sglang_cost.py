"""``autotrace-run python sglang_cost.py MODEL LIVE REPLAYED RESULT``: see ``cost``."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cost import REQUESTS, TOKENS, added, one_round, take_turns
from sglang_engine import ENGINE


class Replay:
    """What a ``TokenizerManager`` gets from the engine's other processes: a round of it is seen, further ones are
    answered like that one."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._batches: list[bytes] = []
        self._recorded: list[str] = []
        self._asked: list[str] = []
        self._ready = asyncio.Event()
        self._dispatch, self._handle = manager._dispatch_to_scheduler, manager._handle_batch_output
        manager._dispatch_to_scheduler, manager._handle_batch_output = self._sent, self._came

    def _sent(self, request: Any) -> None:
        self._recorded.append(request.rid)
        self._dispatch(request)

    async def _came(self, batch: Any) -> None:
        self._batches.append(pickle.dumps(batch))
        await self._handle(batch)

    def begin(self) -> asyncio.Task[None]:
        """Answer from now on."""
        self._manager._dispatch_to_scheduler = self._swallow
        del self._manager._handle_batch_output
        return asyncio.create_task(self._answer())

    def _swallow(self, request: Any) -> None:
        self._asked.append(request.rid)
        if len(self._asked) == len(self._recorded):
            self._ready.set()

    async def _answer(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            names, self._asked = dict(zip(self._recorded, self._asked, strict=True)), []
            for data in self._batches:
                batch = pickle.loads(data)
                batch.rids = [names[rid] for rid in batch.rids]
                await self._manager._handle_batch_output(batch)
                for _ in range(2):  # whoever waits for it reads it first
                    await asyncio.sleep(0)


def main(model: str, live: str, replayed: str, result: str) -> None:
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from sglang.srt.observability.req_time_stats import SchedulerReqTimeStats

    room = {"max_running_requests": REQUESTS, "max_total_tokens": 2 * REQUESTS * (64 + TOKENS)}
    engine = Engine(model_path=model, **{**ENGINE, **room, "disable_radix_cache": True})
    params = {"max_new_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}

    async def request(rid: str, number: int) -> int:
        ids = [5 + (number + place) % 500 for place in range(64)]
        asked = GenerateReqInput(rid=rid, input_ids=ids, sampling_params=dict(params), stream=True)
        return len([None async for _ in engine.tokenizer_manager.generate_request(asked, None)])

    names = ("generate_request", "_wait_one_response", "_tokenize_one_request", "_handle_batch_output")
    methods = [(TokenizerManager, name) for name in names]

    async def measured() -> dict[str, Any]:
        found = {"live": await take_turns(methods, request, int(live), "live")}
        replay = Replay(engine.tokenizer_manager)
        await one_round(request, "seen")
        answering = replay.begin()
        found["replayed"] = await take_turns(methods, request, int(replayed), "replayed")
        answering.cancel()
        return found

    found = engine.loop.run_until_complete(measured())
    times = SimpleNamespace(completion_time=1.0, enable_metrics=False)  # of a request that ends in this step
    step = {"SchedulerReqTimeStats.__getstate__": added(SchedulerReqTimeStats.__getstate__, times)}
    Path(result).write_text(json.dumps({**found, "step": step}))
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
