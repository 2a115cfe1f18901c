"""Keep garbage collections out of the threads of autotrace.

A collection starts in the thread whose allocation exceeds a threshold, and runs the host's finalizers there. A host
with a single thread would suddenly run finalizers in another thread: ``sqlite3`` refuses to be closed there.

So no threshold is ever exceeded while a thread of autotrace runs Python code: the thread sets thresholds of its own,
and gives the host's thresholds back before each wait. The exchange happens around the wait, in one call in C. No code
in Python runs in between, and nothing is allocated, so no collection can start. ``gc.isenabled``, ``gc.get_count`` and
``gc.collect`` stay the host's. Another thread sees the thresholds of autotrace only if the interpreter switches threads
within a slice of work. Each such value tells the host's thresholds behind the value, so even a program that reads a
threshold then, and later sets the threshold again, sets the program's own threshold.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, starmap
from typing import Any

from autotrace.config.originals import thread, time

Thresholds = tuple[int, ...]
_BASE = 2_000_000_000
_ONCE: tuple[tuple[()]] = ((),)

_known: list[Thresholds] = [gc.get_threshold()]
"""Lists all thresholds that the host has had."""
_number = 0
"""Index in ``_known`` of the host's present thresholds."""
_threads: set[int] = set()
_sleep = time.sleep


def _ours() -> Thresholds:
    return (_BASE + _number,) * 3


def _exchange(seen: list[Thresholds]) -> Iterator[Any]:
    """Iterate, in C, over steps that add the host's thresholds to ``seen`` and set ours, which are the first in
    ``seen``.

    The tuple that ``get_threshold`` returns takes the memory of the spare tuple, which was freed just before.
    """
    spare = [(thread.get_ident(), None, None)]
    seen[:] = [_ours()]
    read = map(seen.append, starmap(gc.get_threshold, _ONCE))
    return chain(starmap(spare.clear, _ONCE), read, starmap(gc.set_threshold, seen[:1]))


def _hosts(seen: Iterable[Thresholds] = ()) -> Thresholds:
    """Return the host's present thresholds, as ``_exchange`` has seen or another thread has set since. Set the value
    that represents the host's thresholds here."""
    global _number
    known = (_ours(), *[*seen][:1])
    for one in (*seen, gc.get_threshold()):
        number = one[0] - _BASE
        if one in known:
            continue
        if not 0 <= number < len(_known):
            if one not in _known:
                _known.append(one)
            number = _known.index(one)
        _number = number
    if gc.get_threshold() != _ours():
        gc.set_threshold(*_ours())
    return _known[_number]


def without_collections(body: Iterator[Any], seen: list[Thresholds]) -> tuple[Iterator[Any], int]:
    """Return arguments with which a new thread calls ``deque``, to iterate over ``body`` without a collection."""
    return chain(_exchange(seen), body), 0


def enter(seen: list[Thresholds]) -> None:
    """Begin the calling thread, which iterates over ``without_collections``."""
    _threads.add(thread.get_ident())
    _hosts(seen)


def leave() -> None:
    """End the calling thread."""
    _threads.discard(thread.get_ident())
    gc.set_threshold(*_hosts())


def released(function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function(*args)``, a function in C that waits or writes. In a thread of autotrace the host's thresholds
    hold during the call."""
    if thread.get_ident() not in _threads:
        return function(*args)
    result: list[Any] = []
    seen: list[Thresholds] = []
    call = map(result.append, starmap(function, (args,)))
    steps = chain(starmap(gc.set_threshold, map(_hosts, _ONCE)), call, _exchange(seen))
    try:
        deque(steps, 0)
    except BaseException:
        deque(_exchange(seen), 0)
        raise
    finally:
        _hosts(seen)
    return result[0]


def sleep(seconds: float) -> None:
    """Wait."""
    released(_sleep, seconds)


time.sleep = sleep


def after_fork_in_child() -> None:
    """Give the host its thresholds back: the thread that would do so stayed in the parent."""
    _threads.clear()
    if gc.get_threshold()[0] >= _BASE:
        gc.set_threshold(*_known[_number])
