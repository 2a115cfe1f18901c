"""Streams that their caller closes before their end, or never.

Clients of model servers refer to themselves from inside their generator, so a stream that is closed and dropped lives
on until the garbage collector comes, and one that is closed and kept lives longer. The call is over when ``close`` is:
its class's method is wrapped once, as the steps of iterators are, and passes through for every other object.
"""

from __future__ import annotations

import functools
import weakref
from types import AsyncGeneratorType, FunctionType, GeneratorType
from typing import Any

from autotrace.record import closing, template
from autotrace.record.context import OpenCall
from autotrace.record.iterators import Step
from autotrace.record.object_fields import attribute_of, members_of, mro_of

KEY = "close"
"""Of these wrappers; a target's key has a dot."""
_MARK = "__autotrace_close__"
_METHODS = ("close", "aclose")
_open: dict[int, Closable] = {}
"""By the ``id`` of the stream."""


class Closable(Step):
    """What the wrapper of ``close`` carries as its call."""

    __slots__ = ("holder", "iteration", "reference")

    def __init__(self, stream: Any, holder: Any, iteration: Any) -> None:
        self.number = id(stream)
        self.reference = weakref.ref(stream, functools.partial(_open.pop, self.number))  # in C: see ``dropped``
        self.holder = weakref.ref(holder)
        self.iteration = iteration if iteration is None else weakref.ref(iteration)

    @property
    def running(self) -> bool:
        """In the middle of a step, whose end says how the call ended."""
        if self.iteration is None:
            return getattr(self.holder(), "busy", True)
        iteration = self.iteration()
        if type(iteration) is GeneratorType:
            return iteration.gi_running
        return type(iteration) is not AsyncGeneratorType or iteration.ag_running

    def took(self, item: Any) -> None:
        """The stream is closed."""
        holder = None if self.running else self.holder()
        if holder is not None:
            _open.pop(self.number, None)
            call: OpenCall = holder.call
            closing.ended(call, GeneratorExit())

    def failed(self, error: BaseException) -> None:
        """``close`` raised ``error``; the stream is the caller's no more all the same."""
        self.took(None)


def watch(stream: Any, holder: Any, iteration: Any = None) -> None:
    """End the call of ``holder`` when ``stream`` is closed. ``holder`` has the ``call`` and is gone when that ended;
    ``iteration`` is the generator that takes the steps, or None where ``holder`` is a ``Step``."""
    try:
        if any([_wrapped(type(stream), name) for name in _METHODS]):
            _open[id(stream)] = Closable(stream, holder, iteration)
    except TypeError:  # no weak references
        return


def end_open() -> None:
    """The process ends, and with it what nobody read to its end or closed."""
    for found in _open.copy().values():  # which is in one piece: streams may be collected meanwhile
        found.took(None)


def _wrapped(kind: type, name: str) -> bool:
    """Whether this method of the class goes through a wrapper, now or since earlier."""
    original = attribute_of(kind, name)
    if type(original) is not FunctionType:
        return False
    if _MARK in original.__dict__:
        return True
    code = original.__code__
    form = template.kind_of(code)
    if form not in (template.PLAIN, template.COROUTINE) or not template.takes_one(code):
        return False
    owner = next(one for one in mro_of(kind) if name in members_of(one))
    wrapper = functools.wraps(original)(template.function_for(form, original, name, KEY))
    setattr(wrapper, _MARK, True)
    type.__setattr__(owner, name, wrapper)
    return True


def begin(stream: Any) -> Closable | None:
    """``begin`` of such a wrapper."""
    found = _open.get(id(stream))
    return found if found is not None and found.reference() is stream else None
