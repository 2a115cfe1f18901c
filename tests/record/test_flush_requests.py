"""The wait until the records of an outermost call are written."""

from __future__ import annotations

import _thread
import asyncio
import threading
from typing import Any

import pytest

from autotrace.record import closing, faults, flush_requests, flusher
from autotrace.record.backlog import backlog
from autotrace.spool.records import Close
from tests.waiting import until

from .conftest import Recorder


class Lock:
    """A lock that notes how long somebody may wait for it."""

    waits: list[float]

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.release = self._lock.release

    def acquire(self, *given: Any) -> bool:
        if given:
            self.waits.append(given[1])
        return self._lock.acquire(*given)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Any:
    Lock.waits = []
    monkeypatch.setattr(flush_requests, "_new_lock", Lock)
    monkeypatch.setattr(closing, "on_end", None)
    flush_requests.write_at_once()
    return Lock.waits


def test_the_outermost_call_returns_when_its_records_are_in_the_file(recorder: Recorder, waits: list[float]) -> None:
    inner = recorder.wrap(lambda: 1, key="inner")
    outer = recorder.wrap(lambda: [inner() for _ in range(3)], key="outer")
    for number in range(1, 4):
        outer()
        assert len(recorder.read(Close)) == 4 * number and len(waits) == number
    assert faults.counts == {}


async def test_nobody_waits_on_an_event_loop(recorder: Recorder, waits: list[float]) -> None:
    call = recorder.wrap(lambda: 1, key="one")
    call()
    assert waits == []
    await asyncio.to_thread(until, lambda: len(recorder.read(Close)) == 1)
    assert waits == []


def test_a_file_system_that_hangs_holds_one_caller(
    recorder: Recorder, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    call = recorder.wrap(lambda: 1, key="one")
    call()
    running: Any = flusher._flusher
    write = running._writer.write
    monkeypatch.setattr(running._writer, "write", lambda: goes_on.wait() and write())
    waits.clear()
    try:
        for _ in range(100):
            call()
        assert waits == [flush_requests.PATIENCE]
    finally:
        goes_on.set()
    assert len(recorder.records(Close)) == 101 and not backlog.queue
