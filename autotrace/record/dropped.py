"""Objects of the host's that a call waits for, and that are dropped instead.

Python ignores what is raised while an object goes: a signal handler's exception, a Ctrl-C, would be lost in a callback
of ours, or in a ``__del__``. So the callback is a method written in C, in which no signal handler runs, and the
flusher's thread ends the call.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

from autotrace.record import closing, faults
from autotrace.record.context import OpenCall


class Watched(weakref.ref[Any]):
    """A weak reference to an object whose end is the end of ``call``. It stands in ``table``, by the object's ``id``,
    for as long as the call waits for that. Raises ``TypeError`` for an object that takes no weak reference."""

    __slots__ = ("call", "holder", "number", "table")

    def __new__(cls, value: Any, *_: Any) -> Watched:
        """``_gone.append`` is called with the reference when the object is dropped."""
        return super().__new__(cls, value, _gone.append)

    def __init__(self, value: Any, call: OpenCall, table: dict[int, Watched], holder: Any = None) -> None:
        self.call = call
        self.table = table
        self.holder = holder
        self.number = id(value)


_gone: deque[Watched] = deque()


def find(value: Any, table: dict[int, Watched]) -> Watched | None:
    """What ``table`` has for this object, and not for one before it that had the same ``id``."""
    watched = table.get(id(value))
    return watched if watched is not None and watched() is value else None


def settle() -> None:
    """End the calls of what was dropped."""
    while _gone:
        watched = _gone.popleft()
        if watched.table.get(watched.number) is watched:  # else another object has the number by now
            del watched.table[watched.number]
        try:
            closing.ended(watched.call, GeneratorExit())
        except Exception as error:
            faults.failed("dropped", error)
