"""Start our thread in the middle of a call of the host's, and keep forks free of a warning about our thread.

``threading.Thread.start`` waits until the new thread runs, and a wait may last. Until Python 3.11 a new thread has the
starter's number for a moment. An exception that another thread sets (``PyThreadState_SetAsyncExc``, as timeouts of
reward code do) then hits the new thread; the new thread ends, and the starter waits for ever.

Our thread takes no signal. A program may block a signal and wait for the signal (``signal.sigwait``, a service's
``SIGTERM``): the system would give the signal to our thread, which does not block the signal, and the process would
die. And a signal that our thread takes does not wake the main thread up.

From Python 3.12 ``os.fork`` warns that a process has several threads. If the only other thread is ours, the host would
not be warned without us, and the child has nothing to fear: the child takes over no lock of ours (``flusher.child``).
So the warning is ignored while such a fork is under way. Python 3.12 issues the warning before the callbacks of
``os.register_at_fork``. Python 3.13 issues the warning after the callbacks, when none of our code runs any more on that
thread. The flusher's thread, which does not run before the fork is over, removes the filter again.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` makes an enum of each number
import _warnings
import itertools
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from autotrace.config.originals import thread
from autotrace.record import faults
from autotrace.run import gc_pause

alive: set[int] = set()
"""Holds the running threads that were started here, by the system's numbers."""
started: set[int] = set()
"""Holds the running threads and the started threads that do not run yet, by numbers of our own."""
_numbers = itertools.count()
_OF_A_THREAD = {
    *(_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL),
    *(_signal.SIGTRAP, _signal.SIGSYS, _signal.SIGABRT),
}
"""Lists signals that a thread brings on itself: ``faulthandler`` has to see such a signal."""
_OF_THE_PROCESS = _signal.valid_signals() - _OF_A_THREAD


def start(run: Callable[[], None]) -> None:
    """Start ``run()`` in a thread that does not keep the process from exiting; do not wait for the thread. Raises
    ``RuntimeError`` where no further thread can be started."""
    mine = next(_numbers)
    seen: list[gc_pause.Thresholds] = []
    body = _body(run, thread.get_ident(), mine, seen)
    next(body)
    started.add(mine)
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _OF_THE_PROCESS)  # the new thread inherits the mask
        thread.start_new_thread(deque, gc_pause.without_collections(body, seen))
    except RuntimeError:
        started.discard(mine)
        raise
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)  # in C: nothing can come in between


def _body(run: Callable[[], None], starter: int, mine: int, seen: list[gc_pause.Thresholds]) -> Iterator[None]:
    """Run the thread's work in a generator that is already inside a ``try`` when the thread goes on with the generator:
    in a function, such an exception would be raised before the first statement."""
    hosts: type[BaseException] | None = None
    try:
        yield
    except GeneratorExit:  # the thread could not be started
        return
    except BaseException as error:
        hosts = type(error)
    if hosts is not None:
        _pass_on(hosts, starter)
    number = thread.get_native_id()
    alive.add(number)
    gc_pause.enter(seen)
    try:
        run()
    finally:
        alive.discard(number)
        started.discard(mine)
        gc_pause.leave()


def _pass_on(hosts: type[BaseException], starter: int) -> None:
    """Raise the exception in the thread that the exception was meant for."""
    import ctypes  # imported already by the code that set the exception

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(starter), ctypes.py_object(hosts))


_IGNORED = ("ignore", re.compile(r"This process \(pid=\d+\) is multi-threaded"), DeprecationWarning, None, 0)
_inserted: list[list[Any]] = []
"""Holds the list of filters that has our filter while a fork is under way: the host may exchange the list at any time
(``warnings.catch_warnings``)."""
_over: list[list[Any]] = []
"""Holds lists that still have our filter though the fork is over."""


def before_fork() -> None:
    """Insert our filter before a fork on the calling thread."""
    try:
        settle()
        if alive and _alone():
            # not by ``warnings.simplefilter``, which has all warnings shown again that were shown once
            filters = getattr(sys.modules.get("warnings", _warnings), "filters", None)
            if type(filters) is list:
                _inserted.append(filters)
                filters.insert(0, _IGNORED)
    except Exception as error:
        faults.failed("fork", error)


def _alone() -> bool:
    """Tells whether the process has no threads except the calling thread and ours."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return False
    return alive.issuperset(set(map(int, threads)) - {thread.get_native_id()})


def after_fork_in_parent() -> None:
    """Note that the fork is over in the parent; the filter is still in place."""
    _over.extend(_inserted)
    _inserted.clear()


def after_fork_in_child() -> None:
    """Drop filter and thread in the child."""
    alive.clear()
    started.clear()
    gc_pause.after_fork_in_child()
    after_fork_in_parent()
    settle()


def settle() -> None:
    """Remove filters that are not needed any more. Called by the flusher's thread now and then."""
    while _over:
        try:
            _over.pop().remove(_IGNORED)
        except (IndexError, ValueError):  # another thread was faster, or the host
            continue
