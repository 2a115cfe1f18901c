"""Iterator objects that a call returned: streams of clients whose class has a ``__next__`` or ``__anext__`` of its own.

The call goes on until the iteration ends or the object is dropped. The object stays as it is. What is put on its class,
once, is a wrapper of the same text as those of functions (``template``) that passes through for every object but those
that a recorded call returned.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from autotrace.record import closing, dropped, template
from autotrace.record.context import OpenCall, current
from autotrace.record.object_fields import attribute_of, members_of, mro_of

_MARK = "__autotrace_step__"
_STEPS = {"__next__": template.PLAIN, "__anext__": template.COROUTINE}
_ITERATIONS = ("__iter__", "__aiter__")
_followed: dict[int, dropped.Watched] = {}
"""By the ``id`` of the iterator; ``holder`` is its ``Step``."""


class Step:
    """What the wrappers carry as their call while such an object takes a step."""

    __slots__ = ("__weakref__", "busy", "call", "number")

    def __init__(self, call: OpenCall, value: Any) -> None:
        self.call = call
        self.number = id(value)
        self.busy = False
        """In the middle of a step, which may take others of the same object."""

    def took(self, item: Any) -> None:
        """The step gave ``item``."""
        self.busy = False
        call, *_ = closing.item(self.call, item)
        if call is None:
            self._forget()

    def failed(self, error: BaseException) -> None:
        """The step raised ``error``, which may be the iteration's end."""
        self.busy = False
        self._forget()
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            closing.exhausted(self.call, None)
        else:
            closing.ended(self.call, error)

    def _forget(self) -> None:
        _followed.pop(self.number, None)


def follow(call: OpenCall, value: Any) -> Step | None:
    """``value``, if it is such an iterator, and nobody else's; ``call`` then ends with its iteration."""
    kind = type(value)
    if not any(type(attribute_of(kind, name)) is FunctionType for name in _STEPS) or dropped.find(value, _followed):
        return None
    iterations = [attribute_of(kind, name) for name in _ITERATIONS]
    if any(type(own) is FunctionType and template.kind_of(own.__code__) != template.PLAIN for own in iterations):
        return None  # iterated by a generator of its own, which need not take these steps
    step = Step(call, value)
    try:
        watched = dropped.Watched(value, call, _followed, step)
    except TypeError:  # no weak references: nobody would tell that it was dropped
        return None
    if not any([_wrapped(kind, name) for name in _STEPS]):
        return None
    _followed[step.number] = watched
    return step


def _wrapped(kind: type, name: str) -> bool:
    """Whether the steps of this class go through a wrapper, now or since earlier."""
    owner = next((one for one in mro_of(kind) if name in members_of(one)), None)
    original = None if owner is None else members_of(owner)[name]
    if owner is None or type(original) is not FunctionType:
        return False
    if _MARK in original.__dict__:
        return True
    if template.kind_of(original.__code__) not in (template.PLAIN, _STEPS[name]):
        return False
    wrapper = functools.wraps(original)(template.function_for(_STEPS[name], original, name))
    setattr(wrapper, _MARK, True)
    type.__setattr__(owner, name, wrapper)
    return True


def step(args: tuple[Any, ...]) -> Step | None:
    """``begin`` of such a wrapper: its only argument is the iterator."""
    watched = dropped.find(args[0], _followed)
    if watched is None or watched.holder.busy:
        return None
    found: Step = watched.holder
    call, above = found.call, current.get()
    if above is not call:
        call.above = above
        current.set(call)
    found.busy = True
    return found
