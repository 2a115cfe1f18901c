"""Objects that are dropped while their call waits for them, and what a signal handler raises in that moment."""

from __future__ import annotations

import ctypes
import itertools
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from autotrace.record import context, iterators
from autotrace.spool.records import Close
from tests.record.conftest import Recorder
from tests.record.test_iterators import CHUNKS, make_stream


class Timeout(Exception):
    """As reward code has its own."""


def iterator(recorder: Recorder) -> Any:
    Stream = make_stream()
    return recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()


def closable(recorder: Recorder) -> Any:
    Stream = make_stream()
    Stream.close = lambda self: None
    return recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()


def answer_to_come(recorder: Recorder) -> Any:
    class Raw: ...

    asked: list[Any] = []
    recorder.wrap(lambda: asked.append(context.current.get()), key="ask", role="llm")()
    raw = Raw()
    table: dict[int, iterators.Watched] = {}
    table[id(raw)] = iterators.Watched(raw, asked[0], table)
    return raw


@pytest.mark.parametrize("make", [iterator, closable, answer_to_come])
def test_the_exception_of_a_signal_handler_arrives(recorder: Recorder, make: Callable[[Recorder], Any]) -> None:
    """The signal is there when the object goes: nothing but C runs between the two."""

    def handle(number: int, frame: Any) -> None:
        raise Timeout

    held = [make(recorder)]
    steps = itertools.chain(map(ctypes.CDLL(None)["raise"], [signal.SIGUSR1]), map(held.pop, [0]))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(Timeout):
            deque(steps, maxlen=0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not held
    assert len(recorder.records(Close)) == 1


def test_another_object_may_have_its_number_before_its_call_has_ended(recorder: Recorder) -> None:
    Stream = make_stream()
    ask = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")
    numbers: set[int] = set()
    stream = ask()
    while id(stream) not in numbers:
        numbers.add(id(stream))
        del stream
        stream = ask()
    assert len(list(stream)) == len(CHUNKS)
    assert sorted(close.status for close in recorder.records(Close)) == ["CANCELLED"] * len(numbers) + ["OK"]
