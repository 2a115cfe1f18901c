"""Exceptions of the host's that arrive while code of ours runs: all reach the host, and open calls are closed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest

from autotrace.record import closing, context, errors, faults, flusher, origin
from autotrace.record.backlog import backlog
from autotrace.record.capture import CapturedValues
from autotrace.spool.records import Close, Open
from tests.cases import examples

from .conftest import Recorder

ROUNDS = examples(25)
BETWEEN = 5 if sys.version_info < (3, 11) else 0
"""Of them, at most so many may come between two instructions of ours where no ``try`` can stand: between the return of
``begin`` and the assignment of what it returned Python 3.10 looks for signals, later ones do not. Without autotrace
(lost on 3.10 within a second, never on later ones)::

    def begin(): opened.append(1); return 1
    def call():
        one = None
        try:
            one = begin()
        except Timeout:
            lost = bool(opened) and one is None     # true on 3.10
"""
MESSAGES = [{"role": "user", "content": "x" * 20, "meta": {"turn": [1, {"a": 2}]}} for _ in range(200)]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Python itself swallows what comes in a callback of its collector, and the tests' own tools have one."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Timeout(Exception):
    """As reward code has its own."""


class TimeoutAsAssertion(AssertionError):
    """As ``timeout_decorator`` derives its own."""


class Said:
    """A result with a property, which is read by a path."""

    @property
    def score(self) -> int:
        return sum(range(50))


def plain(messages: Any) -> Any:
    return messages


def scored(messages: Any) -> Said:
    return Said()


async def coroutine(messages: Any) -> Any:
    return messages


def generator(messages: Any) -> Generator[Any, None, Any]:
    yield messages
    yield 2
    return messages


async def async_generator(messages: Any) -> AsyncGenerator[Any, None]:
    yield messages
    yield 2


def deferred(messages: Any) -> Any:
    return coroutine(messages)


def _awaited(function: Callable[..., Any], argument: Any) -> None:
    with contextlib.suppress(StopIteration):
        function(argument).send(None)


def _listed(function: Callable[..., Any], argument: Any) -> None:
    list(function(argument))


def _async_listed(function: Callable[..., Any], argument: Any) -> None:
    async def collect() -> None:
        stream = function(argument)
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()

    with contextlib.suppress(StopIteration):
        collect().send(None)


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "plain": (plain, lambda function, argument: function(argument), {}),
    "coroutine": (coroutine, _awaited, {}),
    "returned coroutine": (deferred, _awaited, {}),
    "generator": (generator, _listed, {}),
    "async generator": (async_generator, _async_listed, {}),
    "paths": (
        scored,
        lambda function, argument: function(argument),
        {"attributes": {"score": ("result.score",), "first": ("messages.0.content",)}},
    ),
}


def _from_a_signal_handler(kind: type[Exception]) -> Callable[[list[int]], None]:
    """What has ``kind`` raised soon, and counts it in the list that it is given."""

    def arm(fired: list[int]) -> None:
        def handle(number: int, frame: Any) -> None:
            fired.append(number)
            raise kind("time is over")

        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.001))

    return arm


class OtherThread:
    """The same by ``PyThreadState_SetAsyncExc``. It takes no lock that the exception could find held."""

    def __init__(self, kind: type[Exception] = Timeout) -> None:
        self.kind = kind
        self.orders: list[list[int]] = []
        self.main = ctypes.c_ulong(threading.get_ident())

    def arm(self, fired: list[int]) -> None:
        self.orders.append(fired)

    def run(self) -> None:
        while True:
            time.sleep(random.uniform(0.0002, 0.001))
            if self.orders:
                fired = self.orders.pop()
                if fired is STOP:
                    return
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self.main, ctypes.py_object(self.kind))
                fired.append(1)


STOP: list[int] = [0]


WAYS = {
    "handler": _from_a_signal_handler(Timeout),
    "handler with a builtin": _from_a_signal_handler(ValueError),
    "handler with a TimeoutError": _from_a_signal_handler(TimeoutError),
    "handler with a derived one": _from_a_signal_handler(TimeoutAsAssertion),
}


def _until_raised(fired: list[int], arm: Callable[[list[int]], None], call: Callable[[], Any]) -> None:
    """A function of its own: Python 3.13 guards no jump back to the head of a loop inside ``try``."""
    arm(fired)
    while not fired:
        call()
    for _ in range(1000):  # what another thread set arrives a little later
        pass


def storm(
    recorder: Recorder, name: str, argument: Any, arm: Callable[[list[int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls with an exception of the host's coming at any moment, until each of ``ROUNDS`` was raised."""
    function, use, target = CALLS[name]
    recorder.start()
    traced = recorder.wrap(function, key=name, **target)
    arrived = 0
    lost: list[Any] = []
    ignored: list[Any] = []

    def unraisable(hook: Any) -> None:
        ours = getattr(hook.object, "__module__", "").startswith("autotrace")
        if not ours and issubclass(
            hook.exc_type, (Timeout, ValueError, RuntimeError, TimeoutError, TimeoutAsAssertion)
        ):
            ignored.append(hook.exc_type)  # it came in a weak reference's callback of the standard library's

    monkeypatch.setattr(sys, "unraisablehook", unraisable)
    for _ in range(ROUNDS):
        fired: list[int] = []
        try:
            _until_raised(fired, arm, lambda: use(traced, argument))
        except (Timeout, ValueError, RuntimeError, TimeoutError, TimeoutAsAssertion):
            arrived += 1
        if context.current.get() is not None:
            lost.append(context.current.get())
            context.current.set(None)
    assert arrived + len(ignored) >= ROUNDS
    assert len(ignored) < 3
    monkeypatch.undo()
    assert len(lost) <= BETWEEN
    assert not {reason: count for reason, count in faults.counts.items() if reason.startswith("fault:")}
    flusher.shutdown()  # all that waits: on a busy machine the thread is still at it
    records = recorder.records()
    opened = [record.span for record in records if isinstance(record, Open)]
    closed = [record.span for record in records if isinstance(record, Close)]
    assert len(closed) == len(set(closed))
    assert set(closed) <= set(opened)
    assert len(set(opened) - set(closed)) <= BETWEEN
    assert backlog.waiting() == 0


@pytest.mark.parametrize("argument", [MESSAGES, "small"], ids=["200 messages", "small"])
@pytest.mark.parametrize(
    ("way", "name"), [*(("handler", name) for name in CALLS), *((way, "plain") for way in WAYS if way != "handler")]
)
def test_what_a_signal_handler_raises_arrives(
    recorder: Recorder, way: str, name: str, argument: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = signal.getsignal(signal.SIGALRM)
    try:
        storm(recorder, name, argument, WAYS[way], monkeypatch)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("argument", [MESSAGES, "small"], ids=["200 messages", "small"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [*((Timeout, name) for name in CALLS), (TimeoutError, "plain"), (RuntimeError, "plain"), (ValueError, "paths")],
)
def test_what_another_thread_sets_arrives(
    recorder: Recorder, kind: type[Exception], name: str, argument: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OtherThread(kind)
    thread = threading.Thread(target=other.run, daemon=True)
    thread.start()
    try:
        storm(recorder, name, argument, other.arm, monkeypatch)
    finally:
        other.orders.append(STOP)
        thread.join()


def test_what_code_of_ours_or_a_property_raises_is_ours() -> None:
    class Strange(Exception): ...

    class Owner:
        @property
        def broken(self) -> int:
            raise Strange

    for fails in (lambda: [][1], lambda: Owner().broken, lambda: 1 / 0):
        try:
            fails()
        except Exception as error:
            assert not origin.is_hosts(error)
    assert origin.is_hosts(KeyboardInterrupt())


def test_in_a_thread_of_ours_everything_is_ours() -> None:
    seen: list[bool] = []

    def run() -> None:
        origin.own_thread()
        seen.append(origin.is_hosts(KeyboardInterrupt()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


def test_the_exception_of_a_handler_ends_a_call_as_a_timeout(recorder: Recorder) -> None:
    """It comes while the argument is read, after the function itself ran."""
    ran: list[Any] = []

    class Waits:
        @property
        def value(self) -> int:
            signal.raise_signal(signal.SIGALRM)
            return 1

    def handle(number: int, frame: Any) -> None:
        raise TimeoutError

    traced = recorder.wrap(lambda x: ran.append(x), key="ran", facts={"value": ("x.value",)})
    previous = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(TimeoutError):
            traced(Waits())
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(ran) == 1 and context.current.get() is None
    assert [close.status for close in recorder.records(Close)] == ["TIMEOUT"]


def test_what_another_thread_set_may_arrive_before_the_first_instruction_of_a_function() -> None:
    """The function ends with an instruction that raises, which is where the frame would stand by its negative number:
    what Python 3.10 does."""

    def interrupted(_: Any) -> None:
        number = "1"
        try:
            int(number)
        except KeyError:
            number = ""

    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    own = ctypes.c_ulong(threading.get_ident())
    steps = itertools.chain(map(set_exception, [own], [ctypes.py_object(Timeout)]), map(interrupted, [None]))
    try:
        list(steps)
        time.sleep(0)
        pytest.fail("nothing was raised")
    except Timeout as error:
        assert origin.is_hosts(error)


PLACES = {"output": (CapturedValues, "output"), "fail": (closing, "leave"), "described": (errors, "described")}
"""Functions that are called while a call ends: with a result, with an error, and while that is described."""


@pytest.mark.parametrize("place", PLACES)
def test_a_call_interrupted_while_it_ends_is_closed_all_the_same(
    recorder: Recorder, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = PLACES[place]
    original = getattr(owner, name)
    interrupts = iter([True])

    def interrupted(*args: Any) -> Any:
        if ran and next(interrupts, False):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(own, ctypes.py_object(Timeout))
        return original(*args)

    own = ctypes.c_ulong(threading.get_ident())
    ran: list[str] = []

    def work(text: str) -> str:
        ran.append("end")
        if place != "output":
            raise KeyError(text)
        return text * 2

    recorder.start()
    traced = recorder.wrap(work)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(Timeout):
        traced("long" * 1000)
    monkeypatch.undo()
    assert context.current.get() is None
    assert len(recorder.records(Open)) == len(recorder.records(Close)) == 1
    assert backlog.waiting() == 0


class Dropping:
    """Handlers that keep nothing of the frame they were given."""

    kind: type[Exception] = Timeout

    def method(self, number: int, frame: Any) -> None:
        del frame
        raise self.kind("time is over")

    __call__ = method


def _dropping(number: int, frame: Any) -> None:
    del frame
    raise Dropping.kind("time is over")


def _dropping_with_more(more: int, number: int, frame: Any) -> None:
    del frame
    raise Dropping.kind("time is over")


@pytest.mark.parametrize("kind", [Timeout, TimeoutAsAssertion, RuntimeError, TimeoutError])
@pytest.mark.parametrize(
    "handler",
    [_dropping, Dropping().method, Dropping(), functools.partial(_dropping_with_more, 1)],
    ids=["function", "method", "object", "partial"],
)
def test_a_handler_may_drop_the_frame_it_interrupts(
    recorder: Recorder, handler: Any, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while an argument is copied."""
    monkeypatch.setattr(Dropping, "kind", kind)

    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGALRM)

    traced = recorder.wrap(plain)
    traced(MESSAGES)
    monkeypatch.setattr("autotrace.record.calls._monotonic_ns", interrupted)
    monkeypatch.setattr("autotrace.record.closing._monotonic_ns", interrupted)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(kind):
            traced(MESSAGES)
    finally:
        signal.signal(signal.SIGALRM, previous)
