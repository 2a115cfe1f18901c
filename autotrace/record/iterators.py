"""Follow streams of clients that are not generators: iterator objects, streams that are closed early or not read to the
end, and objects of the host's that a call waits for and that are dropped instead.

- Iterator objects whose class has a ``__next__`` or ``__anext__`` of its own: the call goes on until the iteration ends
  or the object is dropped.
- Clients of model servers refer to themselves from inside their generator. So a stream that is closed and dropped lives
  on until the garbage collector comes, and a stream that is closed and kept lives longer. The call ends with ``close``.
- Callers break out at the finish reason, and training programs switch the garbage collector off. So the flusher's
  thread ends the calls of complete streams.

The object stays unchanged. The object's class gets, once, a wrapper of the same text as the wrappers of functions
(``template``). The wrapper passes through for every object that no recorded call returned.

Python ignores an exception that is raised while an object goes: a signal handler's exception, a Ctrl-C, would be lost
in a callback of ours, or in a ``__del__``. So the callback is a method written in C, in which no signal handler runs,
and the flusher's thread ends the call.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable
from types import AsyncGeneratorType, FunctionType, GeneratorType
from typing import Any

from autotrace.config.originals import time
from autotrace.record import closing, context, faults, template
from autotrace.record.context import OpenCall, current
from autotrace.record.object_fields import attribute_of, members_of, mro_of


class Watched(weakref.ref[Any]):
    """Refers weakly to an object whose end is the end of ``call``. ``table`` holds the reference by the object's ``id``
    for as long as the call waits for the end. Raises ``TypeError`` for an object that takes no weak reference."""

    __slots__ = ("call", "holder", "number", "table")

    def __new__(cls, value: Any, *_: Any) -> Watched:
        """Register ``_gone.append``, which is called with the reference when the object is dropped."""
        return super().__new__(cls, value, _gone.append)

    def __init__(self, value: Any, call: OpenCall, table: dict[int, Watched], holder: Any = None) -> None:
        self.call = call
        self.table = table
        self.holder = holder
        self.number = id(value)


_gone: deque[Watched] = deque()


def watched_in(value: Any, table: dict[int, Watched]) -> Watched | None:
    """Return the entry of ``table`` for this object, and not for an earlier object with the same ``id``."""
    watched = table.get(id(value))
    return watched if watched is not None and watched() is value else None


def settle_dropped() -> None:
    """End the calls of dropped objects."""
    while _gone:
        watched = _gone.popleft()
        if watched.table.get(watched.number) is watched:  # else another object has the number by now
            del watched.table[watched.number]
        try:
            closing.ended(watched.call, GeneratorExit())
        except Exception as error:
            faults.failed("dropped", error)


def dropped(call: OpenCall) -> Callable[[Any], None]:
    """Return the function that Python calls with the asynchronous generator of ``call``, if the generator is dropped
    and the event loop is closed."""
    return functools.partial(_dropped, call)


def _dropped(call: OpenCall, _: Any) -> None:
    closing.ended(call, GeneratorExit())


CLOSE = "close"
"""Holds the key of the wrappers of ``close``; a target's key has a dot."""
IDLE_NS = 1_500_000_000
"""Holds the ns without a further item after which a stream ends (servers send the usage after the finish reason).
Shorter than the shipper's wait for calls that an ended root left open."""
_MARK = "__autotrace_step__"
_STEPS = {"__next__": template.PLAIN, "__anext__": template.COROUTINE}
_ITERATIONS = ("__iter__", "__aiter__")
_CLOSES = ("close", "aclose")
_followed: dict[int, Watched] = {}
"""Map the ``id`` of an iterator to its reference; ``holder`` is the ``IteratorStep``."""
_open: dict[int, Closable] = {}
"""Map the ``id`` of a stream to its ``Closable``."""
_watched: list[tuple[OpenCall, int, int]] = []
"""Lists (call, number of items at the last count, time of the last count)."""


class IteratorStep:
    """Stands for the call in the wrappers while such an object takes a step."""

    __slots__ = ("__weakref__", "busy", "call", "number")

    def __init__(self, call: OpenCall, value: Any) -> None:
        self.call = call
        self.number = id(value)
        self.busy = False
        """Tells whether a step runs; a step may take other steps of the same object."""

    def took(self, item: Any) -> None:
        """Record that the step gave ``item``."""
        self.busy = False
        call, *_ = closing.item(self.call, item)
        if call is None:
            self._forget()

    def failed(self, error: BaseException) -> None:
        """Record that the step raised ``error``, which may be the iteration's end."""
        self.busy = False
        self._forget()
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            closing.exhausted(self.call, None)
        else:
            closing.ended(self.call, error)

    def _forget(self) -> None:
        _followed.pop(self.number, None)


def follow(call: OpenCall, value: Any) -> IteratorStep | None:
    """Follow ``value`` if ``value`` is such an iterator that no other call follows; ``call`` then ends with the
    iteration."""
    kind = type(value)
    if not any(type(attribute_of(kind, name)) is FunctionType for name in _STEPS) or watched_in(value, _followed):
        return None
    iterations = [attribute_of(kind, name) for name in _ITERATIONS]
    if any(type(own) is FunctionType and template.kind_of(own.__code__) != template.PLAIN for own in iterations):
        return None  # iterated by a generator of its own, which need not call ``__next__``
    step = IteratorStep(call, value)
    try:
        watched = Watched(value, call, _followed, step)
    except TypeError:  # no weak references: nobody would report that the object was dropped
        return None
    if not any([_wrapped(kind, name) for name in _STEPS]):
        return None
    _followed[step.number] = watched
    return step


def _wrapped(kind: type, name: str, key: str = "") -> bool:
    """Wrap this method of the class, unless wrapped earlier; return whether the method goes through a wrapper."""
    owner = next((one for one in mro_of(kind) if name in members_of(one)), None)
    original = None if owner is None else members_of(owner)[name]
    if owner is None or type(original) is not FunctionType:
        return False
    if _MARK in original.__dict__:
        return True
    form = template.kind_of(original.__code__)
    if form not in (template.PLAIN, _STEPS.get(name, template.COROUTINE)) or not template.takes_one(original.__code__):
        return False
    wrapper = functools.wraps(original)(template.function_for(_STEPS.get(name, form), original, name, key))
    setattr(wrapper, _MARK, True)
    type.__setattr__(owner, name, wrapper)
    return True


def step(args: tuple[Any, ...]) -> IteratorStep | None:
    """Serve as ``begin`` for such a wrapper: the only argument is the iterator."""
    watched = watched_in(args[0], _followed)
    if watched is None or watched.holder.busy:
        return None
    found: IteratorStep = watched.holder
    call, above = found.call, current.get()
    if above is not call:
        call.above = above
        current.set(call)
    found.busy = True
    return found


class Closable(IteratorStep):
    """Stands for the call in the wrapper of ``close``."""

    __slots__ = ("holder", "iteration", "reference")

    def __init__(self, stream: Any, holder: Any, iteration: Any) -> None:
        self.number = id(stream)
        self.reference = weakref.ref(stream, functools.partial(_open.pop, self.number))  # in C: see ``dropped``
        self.holder = weakref.ref(holder)
        self.iteration = iteration if iteration is None else weakref.ref(iteration)

    @property
    def running(self) -> bool:
        """Tells whether a step runs, whose end decides how the call ended."""
        if self.iteration is None:
            return getattr(self.holder(), "busy", True)
        iteration = self.iteration()
        if type(iteration) is GeneratorType:
            return iteration.gi_running
        return type(iteration) is not AsyncGeneratorType or iteration.ag_running

    def took(self, item: Any) -> None:
        """Record that the stream is closed."""
        holder = None if self.running else self.holder()
        if holder is not None:
            _open.pop(self.number, None)
            call: OpenCall = holder.call
            closing.ended(call, GeneratorExit())

    def failed(self, error: BaseException) -> None:
        """Record that ``close`` raised ``error``; the caller gives the stream up all the same."""
        self.took(None)


def watch(stream: Any, holder: Any, iteration: Any = None) -> None:
    """End the call of ``holder`` when ``stream`` is closed. ``holder`` has the ``call`` and is gone when the call
    ended. ``iteration`` is the generator that takes the steps, or None where ``holder`` is an ``IteratorStep``."""
    try:
        if any([_wrapped(type(stream), name, CLOSE) for name in _CLOSES]):
            _open[id(stream)] = Closable(stream, holder, iteration)
    except TypeError:  # no weak references
        return


def end_open() -> None:
    """End the calls of streams that nobody read to the end or closed, because the process ends."""
    for found in _open.copy().values():  # a copy is a single step: streams may be collected meanwhile
        found.took(None)


def closed(stream: Any) -> Closable | None:
    """Serve as ``begin`` for the wrapper of ``close``."""
    found = _open.get(id(stream))
    return found if found is not None and found.reference() is stream else None


def settle(*, idle_ns: int = IDLE_NS) -> None:
    """End the calls whose streams are complete and yielded nothing more for ``idle_ns``."""
    while closing.said:
        call, at = closing.said.popleft()
        _watched.append((call, call.items, at))
    if not _watched:
        return
    now, waiting = time.monotonic_ns(), []
    for call, items, at in _watched:
        if call.epoch != context.epoch:  # the call ended, or belongs to a parent process
            continue
        if call.items != items:
            items, at = call.items, now
        if now - at < idle_ns:
            waiting.append((call, items, at))
            continue
        try:
            closing.settled(call, at)
        except Exception as error:
            faults.failed("stream", error)
    _watched[:] = waiting
