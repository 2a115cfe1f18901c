"""Know which thread runs a garbage collection, and keep context variables safe from collections.

Below Python 3.12 a collection starts inside an allocation, and ``ContextVar.set`` allocates while the call walks the
context's mapping. If a finalizer then sets a variable too, the new mapping replaces the old mapping, Python frees the
old mapping under the walk, and the process dies. ``copy_context`` and ``reset`` have the same fault. So autotrace holds
the mapping from the start of each collection to the stop. A mapping that finalizers replaced is held longer, because
the interrupted call goes on to walk the mapping after the stop. A call in C makes fewer than ``MOST`` allocations, and
so starts fewer collections.

On every Python, a call in a finalizer that a collection runs opens no trajectory: whose call the finalizer interrupts
is chance.

``gc.callbacks`` has two entries of autotrace, the first and the last, so the callbacks of the host run in between. The
entries call functions in C only: a signal handler that raised inside Python code there would lose its exception,
because Python only prints the exceptions of such callbacks.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from contextvars import Context, copy_context
from functools import partial
from itertools import compress, repeat, starmap
from operator import is_not, not_
from typing import Any

from autotrace.config.originals import thread
from autotrace.record import faults

get_ident = thread.get_ident
MOST = 64
"""Limit the mappings that are held after their collection. A ``set`` makes 48 objects at most: 33 where a node of the
mapping gets a seventeenth entry, and two for each level."""


class _First(list[int]):
    """Holds the number of the thread that collects; empty while no thread collects. ``gc`` reads the attributes
    ``start`` and ``stop``."""

    __slots__ = ()
    start: Any
    stop = None


class _Last(list[Any]):
    """Holds the mapping of the thread that collects."""

    __slots__ = ()
    start = None
    stop: Any


collecting, _mapping = _First(), _Last()
_replaced: deque[Any] = deque(maxlen=MOST)
_started: Any = map(collecting.append, starmap(get_ident, repeat(())))
# To enter a context makes each variable forget the value that it keeps beside the mapping. Such a value may be freed if
# an interrupted ``set`` undoes what a finalizer set.
_stopped: Any = map(Context().run, repeat(list.clear), repeat(collecting))
if sys.version_info < (3, 12):
    _now = map(gc.get_referents, starmap(copy_context, repeat(())))  # a list of one mapping
    _differs: Any = map(map, repeat(is_not), repeat(_mapping), _now)
    _started = zip(_started, map(_mapping.extend, _now), strict=False)
    _held = map(_replaced.extend, map(compress, repeat(_mapping), _differs))
    _stopped = zip(_held, starmap(_mapping.clear, repeat(())), _stopped, strict=False)
_First.start = property(partial(next, _started))
_Last.stop = property(partial(next, _stopped))
_first, _last = partial(getattr, collecting), partial(getattr, _mapping)


def watch() -> None:
    """Watch each collection from now on: the start before the callbacks of the host, the stop after the callbacks of
    the host. Idempotent."""
    if not any(one is _first for one in gc.callbacks):  # the host may have cleared the list
        gc.callbacks[:] = [_first, *gc.callbacks, _last]


def unwatch() -> None:
    """Stop watching collections. Below Python 3.12 nothing changes: generators that were recorded may still be
    suspended, and a collection may close such a generator."""
    if sys.version_info >= (3, 12):
        gc.callbacks[:] = [one for one in gc.callbacks if one is not _first and one is not _last]
        collecting.clear()
    release()


def is_collecting() -> bool:
    """Tells whether the calling thread is inside a collection."""
    return bool(collecting) and get_ident() in collecting


def refuses() -> bool:
    """Tells whether a trajectory may not begin now, because a collection runs in this thread; counts each refusal."""
    if not is_collecting():
        release()
        return False
    faults.count("drop:finalizer")
    return True


def release() -> None:
    """Release replaced mappings, unless a thread collects: no code in Python runs while a call walks a mapping, except
    the code of a collection. A single step in C checks and releases."""
    if _replaced:
        deque(starmap(_replaced.clear, compress([()], map(not_, [collecting]))), 0)
