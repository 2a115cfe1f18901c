"""128 trajectories at once with prompts of 500 to 7,500 tokens: nothing is dropped at rates a training run reaches."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time

from . import report

SECONDS = 8.0
TURNS = 15


async def rollout(uid: int, rate: float) -> int:
    """One trajectory: ``TURNS`` turns, the prompt grows by what was said."""
    chance = random.Random(uid)
    ids = [chance.randrange(150_000) for _ in range(500)]
    for _ in range(TURNS):
        response = await generate(ids)
        ids = ids + response + [chance.randrange(150_000) for _ in range(160)]
        await asyncio.sleep(chance.uniform(0.5, 1.5) * 128 / rate)
    return len(ids)


async def generate(prompt_ids: list[int]) -> list[int]:
    """The model's answer."""
    return [len(prompt_ids) % 150_000] * 300


async def _all(rate: float) -> tuple[int, int]:
    calls, trajectories, running = 0, 0, set()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or running:
        while len(running) < 128 and time.monotonic() < until:
            running.add(asyncio.ensure_future(rollout(trajectories, rate)))
            trajectories += 1
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        calls += TURNS * len(done)
    return trajectories, calls


def main(variant: str) -> None:
    """``400`` calls a second, ``400-busy`` with both cores at other work, ``1600``."""
    rate, _, busy = variant.partition("-")
    code = f"import time; until = time.monotonic() + {SECONDS + 10}\nwhile time.monotonic() < until: pass"
    others = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(2 if busy else 0)]
    trajectories, calls = asyncio.run(_all(float(rate)))
    for other in others:
        other.kill()
        other.wait()
    report(trajectories=trajectories, calls=trajectories + calls)
