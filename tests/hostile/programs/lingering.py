"""A root ends while a worker that it started lives on: its trajectory is delivered in seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import report, run_folder

PATIENCE = 120.0
over = threading.Event()


def step(number: int) -> int:
    """What a worker does."""
    return number


def _work() -> None:
    number = 0
    while not over.wait(0.05):
        step(number)
        number += 1


def root_with_pool(pool: ThreadPoolExecutor) -> int:
    """The pool starts its thread lazily, here."""
    pool.submit(_work)
    return step(-1)


def root_with_thread() -> int:
    """A plain thread."""
    threading.Thread(target=_work).start()
    return step(-1)


async def root_with_task() -> asyncio.Task[None]:
    """A background task, which inherits the context."""

    async def work() -> None:
        number = 0
        while not over.is_set():
            step(number)
            number += 1
            await asyncio.sleep(0.05)

    step(-1)
    return asyncio.create_task(work())


def _delivered(name: str) -> bool:
    """The root's trajectory is at the backend."""
    folder = run_folder()
    if folder is None:
        return True
    file = Path(folder) / "trajectories.jsonl"
    return file.exists() and any(name in line for line in file.read_text().splitlines())


def main(variant: str) -> None:
    """``pool``, ``thread``, ``task``."""
    if variant == "task":
        report(delivered=asyncio.run(_task()))
        return
    if variant == "pool":
        pool = ThreadPoolExecutor(1)
        root_with_pool(pool)
    else:
        root_with_thread()
    until = time.monotonic() + PATIENCE
    while not (delivered := _delivered(f"root_with_{variant}")) and time.monotonic() < until:
        time.sleep(0.1)
    over.set()
    report(delivered=delivered)


async def _task() -> bool:
    task = await root_with_task()
    until = time.monotonic() + PATIENCE
    while not (delivered := _delivered("root_with_task")) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    over.set()
    await task
    return delivered
