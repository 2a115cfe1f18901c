"""``autotrace-run python sglang_cost.py MODEL ROUNDS RESULT``: see ``cost``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cost import REQUESTS, TOKENS, added, take_turns
from sglang_engine import ENGINE


def main(model: str, rounds: str, result: str) -> None:
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    room = {"max_running_requests": REQUESTS, "max_total_tokens": 2 * REQUESTS * (64 + TOKENS)}
    engine = Engine(model_path=model, **{**ENGINE, **room, "disable_radix_cache": True})
    params = {"max_new_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}

    async def request(rid: str, number: int) -> int:
        ids = [5 + (number + place) % 500 for place in range(64)]
        asked = GenerateReqInput(rid=rid, input_ids=ids, sampling_params=dict(params), stream=True)
        return len([None async for _ in engine.tokenizer_manager.generate_request(asked, None)])

    names = ("generate_request", "_wait_one_response", "_tokenize_one_request", "_handle_batch_output")
    methods = [(TokenizerManager, name) for name in names]
    found = engine.loop.run_until_complete(take_turns(methods, request, int(rounds)))
    step = {"Scheduler.run_batch": added(Scheduler.run_batch, None, None)}
    Path(result).write_text(json.dumps({**found, "step": step}))
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
