"""128 trajectories at once in one process: ``python -m tests.faults.agents RUN_FOLDER TRAJECTORIES CALLS_A_SECOND``.

Each makes 15 calls of the model whose prompts grow from 500 to 7,500 tokens. Prints as JSON what was made and what was
counted as dropped, and the longest time that the event loop stood still.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import time

from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch import engine
from autotrace.patch.wrapper import wrap
from autotrace.record import faults, flusher

CONCURRENT, TURNS = 128, 15
TARGETS = (
    Target("agents.rollout", ("agents.rollout",), role="trajectory", attributes={"uid": ("uid",)}),
    Target("agents.generate", ("agents.generate",), role="llm", include=("messages", "result"),
           tokens={"prompt": ("prompt_ids",), "response": ("result",)}),
)  # fmt: skip


async def rollout(uid: str, pause: float) -> None:
    """One trajectory."""
    ids = [random.randrange(150_000) for _ in range(500)]
    messages = [{"role": "user", "content": "what is to be done?"}]
    for turn in range(TURNS):
        answer = await generate(ids, messages, pause * random.uniform(0.5, 1.5))
        ids = ids + answer + [random.randrange(150_000) for _ in range(400)]
        messages = [*messages, {"role": "assistant", "content": f"answer {turn} " * 50}]


async def generate(prompt_ids: list[int], messages: list[dict[str, str]], seconds: float) -> list[int]:
    """The model's answer."""
    await asyncio.sleep(seconds)
    return [random.randrange(150_000) for _ in range(67)]


rollout, generate = (wrap(each, f"agents.{each.__name__}") for each in (rollout, generate))  # type: ignore[assignment]


async def main(trajectories: int, rate: float) -> float:
    """Makes them; the longest stall of the event loop (seconds)."""
    gate = asyncio.Semaphore(CONCURRENT)
    longest = 0.0

    async def one(number: int) -> None:
        async with gate:
            await rollout(str(number), CONCURRENT / rate)

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before - 0.005)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(one(number) for number in range(trajectories)))
    watching.cancel()
    return longest


if __name__ == "__main__":
    folder, trajectories, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    engine.start(Plan(TARGETS, Settings()), folder, os.path.basename(folder))
    began = time.monotonic()
    longest = asyncio.run(main(trajectories, rate))
    spent = time.monotonic() - began
    flusher.shutdown()
    made = {
        "calls": trajectories * TURNS,
        "calls_a_second": round(trajectories * TURNS / spent, 1),
        "longest_stall_ms": round(longest * 1e3, 1),
        "exit_s": round(time.monotonic() - began - spent, 2),
        "cpu_s": round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "drops": {reason: count for reason, count in faults.counts.items() if reason.startswith("drop:")},
        "faults": {reason: count for reason, count in faults.counts.items() if not reason.startswith("drop:")},
    }
    print(json.dumps(made))
