"""Know which thread runs a garbage collection, and keep context variables safe from collections.

Below Python 3.12 a collection starts inside an allocation, and ``ContextVar.set`` allocates while the call walks the
context's mapping. If a finalizer then sets a variable too, the new mapping replaces the old mapping, Python frees the
old mapping under the walk, and the process dies. Two rules prevent that:

- While recording sets a variable, recording holds the old mapping: a copy of the context refers to the mapping.
- Inside a collection recording sets no variable, because the interrupted ``set`` may be asyncio's or the host's. Calls
  that begin there are recorded below the current call, and are not current themselves.

On every Python, a call in a finalizer that a collection runs opens no trajectory: whose call the finalizer interrupts
is chance.

``gc.callbacks`` has one entry of autotrace. The entry calls functions in C only: a signal handler that raised inside
Python code there would lose its exception, because Python only prints the exceptions of such callbacks.
"""

from __future__ import annotations

import gc
import sys
from contextvars import Context, ContextVar, Token, copy_context
from functools import partial
from itertools import repeat, starmap
from typing import Any

from autotrace.config.originals import thread
from autotrace.record import faults

get_ident = thread.get_ident


class _Collecting(list[int]):
    """The number of the thread that collects; empty while no thread collects. ``gc`` reads the attributes ``start`` and
    ``stop``."""

    __slots__ = ()
    start: Any
    stop: Any


collecting = _Collecting()
_Collecting.start = property(partial(next, map(collecting.append, starmap(get_ident, repeat(())))))
_run: Any = Context().run
# To enter a context makes each variable forget the value that it keeps beside the mapping. Such a value may be freed if
# an interrupted ``set`` undoes what a finalizer set.
_Collecting.stop = property(partial(_run, list.clear))
_callback = partial(getattr, collecting)


def watch() -> None:
    """Hear of each collection from now on, before the callbacks of the host do. Idempotent."""
    if not any(one is _callback for one in gc.callbacks):  # the host may have cleared the list
        gc.callbacks.insert(0, _callback)


def unwatch() -> None:
    """Hear of no collection any more. Below Python 3.12 nothing changes: generators that were recorded may still be
    suspended, and a collection may close them."""
    if sys.version_info >= (3, 12):
        gc.callbacks[:] = [one for one in gc.callbacks if one is not _callback]
        collecting.clear()


def is_collecting() -> bool:
    """Whether the calling thread is inside a collection."""
    return bool(collecting) and get_ident() in collecting


def refuses() -> bool:
    """Whether a trajectory may not begin now, because a collection runs in this thread; counts."""
    if not is_collecting():
        return False
    faults.count("drop:finalizer")
    return True


class _Variable:
    """A context variable for Python 3.10 and 3.11, with the methods of ``ContextVar`` that recording uses."""

    __slots__ = ("get", "reset", "set")

    def __init__(self, name: str, **default: Any) -> None:
        variable: ContextVar[Any] = ContextVar(name, **default)
        assign, restore = variable.set, variable.reset

        def set(value: Any) -> Token[Any] | None:
            if collecting and get_ident() in collecting:
                return None
            Context()  # is dropped at once, and ``copy_context`` takes its memory: no collection starts in there
            held = copy_context()  # noqa: F841 - refers to the mapping that ``assign`` walks
            return assign(value)

        def reset(token: Token[Any] | None) -> None:
            if token is None:
                return
            if collecting and get_ident() in collecting:
                raise ValueError("a garbage collection runs in this thread")
            Context()
            held = copy_context()  # noqa: F841 - as above
            restore(token)

        self.get = variable.get
        self.set = set
        self.reset = reset


def variable(name: str, **default: Any) -> Any:
    """A context variable. Inside a collection, below Python 3.12, ``set`` does nothing and returns None, and ``reset``
    raises ``ValueError`` as in a foreign context; ``reset(None)`` does nothing."""
    return ContextVar(name, **default) if sys.version_info >= (3, 12) else _Variable(name, **default)
