"""Timeouts that a signal handler or another thread raises in user code: as many arrive as were raised."""

from __future__ import annotations

import ctypes
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from . import history, report

ROUNDS = 60
PATIENCE = 0.2
"""Seconds of work after which a timeout that was raised and has not arrived was swallowed."""
MESSAGES = history(200)


class Timeout(Exception):
    """As reward code has it: an ordinary exception, which ``except Exception`` takes."""


def small(number: int, text: str) -> int:
    """A cheap call."""
    return number


def with_history(messages: list[dict[str, Any]]) -> int:
    """A call whose argument takes long to copy."""
    return len(messages)


def stream(number: int) -> Iterator[int]:
    """A generator, drained by its caller."""
    yield from range(20)


def fails(number: int) -> None:
    """A call that raises: also the recording of an error is interrupted."""
    raise KeyError(number)


def _small() -> None:
    small(1, "two")


def _history() -> None:
    with_history(MESSAGES)


def _stream() -> None:
    for _ in stream(3):
        pass


def _fails() -> None:
    with suppress(KeyError):
        fails(4)


WORK: dict[str, Callable[[], None]] = {"small": _small, "history": _history, "generator": _stream, "error": _fails}


def main(variant: str) -> None:
    """``signal-small``, ``thread-history``, ...: who raises, and during what."""
    source, work = variant.split("-")
    {"signal": _signals, "thread": _asynchronous}[source](WORK[work])


def _work_until(fired: Callable[[], bool], work: Callable[[], None]) -> None:
    """Work until the timeout was raised, and then for as long as it may take to arrive. A function of its own: the
    jumps of a loop right inside of ``try`` are not guarded by it in every release of Python."""
    while not fired():
        work()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        work()


def _signals(work: Callable[[], None]) -> None:
    fired = arrived = 0
    chance = random.Random(7)

    def handler(signum: int, frame: object) -> None:
        nonlocal fired
        fired += 1
        raise Timeout

    signal.signal(signal.SIGALRM, handler)
    late: list[float] = []
    for _ in range(ROUNDS):
        before, passed = fired, [(0.0, time.thread_time())]

        def has_fired(before: int = before, passed: list[tuple[float, float]] = passed) -> bool:
            passed.append((time.monotonic(), time.thread_time()))
            return fired != before

        due = time.monotonic() + (delay := chance.uniform(0.0002, 0.003))
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            _work_until(has_fired, work)
        except Timeout:
            # in time of this thread's own, from its last look at the clock before: what others do does not count
            late.append(time.thread_time() - max(own for at, own in passed if at <= due))
            arrived += 1
    late.sort()
    report(fired=fired, arrived=arrived, late=late[len(late) // 2], latest=late[-1])


def _asynchronous(work: Callable[[], None]) -> None:
    fired = arrived = 0
    chance = random.Random(7)
    main_thread = threading.get_ident()
    armed, raised = threading.Event(), threading.Event()

    def other() -> None:
        nonlocal fired
        for _ in range(ROUNDS):
            armed.wait()
            armed.clear()
            time.sleep(chance.uniform(0.0002, 0.003))
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main_thread), ctypes.py_object(Timeout))
            fired += 1
            raised.set()

    threading.Thread(target=other, daemon=True).start()
    for _ in range(ROUNDS):
        try:
            armed.set()
            _work_until(raised.is_set, work)
        except Timeout:
            arrived += 1
        raised.wait()
        raised.clear()
    report(fired=fired, arrived=arrived)
