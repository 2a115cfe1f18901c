"""Requests to the flusher's thread to write now, and the bounded wait for that.

A process that another one started may end as soon as its result is out: ``Pool.terminate`` and ``ray.kill`` send a
signal, ``multiprocessing`` leaves by ``os._exit``. So when the outermost call ends there, the caller waits until its
records are in the file. The flusher's thread writes, never the caller: a file system that hangs holds the caller for
``PATIENCE`` at most, once, and for a twentieth of the time after that.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from autotrace.config.originals import thread, time
from autotrace.record import closing, context, faults, origin
from autotrace.run import gc_pause

PATIENCE = 0.5
"""Seconds that a caller waits at most. A caller on an event loop does not wait: the loop serves other rollouts."""
SHARE = 20
"""After a wait in vain, nobody waits for this many times as long."""


class FlushRequest:
    """A request to write now. ``seal``: the reason for which the segment ends then, or ``""``."""

    __slots__ = ("done", "seal")

    def __init__(self, seal: str = "") -> None:
        self.done = _new_lock()
        self.done.acquire()
        self.seal = seal


_new_lock = thread.allocate_lock
_queue: deque[FlushRequest] = deque()
_wake = thread.allocate_lock()
"""The flusher's thread waits for this lock; a request releases the lock. A wait for a lock raises nothing when its time
is over, which ``gc_pause.released`` wants."""
_thread = 0
"""The number of the flusher's thread."""
has_thread = True
"""Whether that thread can be started."""
_no_wait_before = 0.0


def forget() -> None:
    """Start anew: the next flusher has a thread of its own, and takes over no request."""
    global _queue, _wake, _no_wait_before, _thread, has_thread
    _queue, _wake, _no_wait_before, _thread, has_thread = deque(), thread.allocate_lock(), 0.0, 0, True


def take(seconds: float) -> list[FlushRequest]:
    """Sleep for ``seconds``, or until somebody requests a write. Called by the flusher's thread alone."""
    global _thread
    _thread = thread.get_ident()
    queue, requests = _queue, []
    gc_pause.released(_wake.acquire, True, seconds)
    while queue:
        requests.append(queue.popleft())
    return requests


def _put(request: FlushRequest) -> None:
    _queue.append(request)
    try:
        _wake.release()
    except RuntimeError as error:  # the thread is awake
        if origin.is_hosts(error):
            raise


def is_pending() -> bool:
    """Whether somebody waits."""
    return bool(_queue)


def written() -> None:
    """Have everything written that was recorded so far, and wait for that."""
    global _no_wait_before
    began = time.monotonic()
    if not _can_wait():
        return
    request = FlushRequest()
    _put(request)
    asyncio = sys.modules.get("_asyncio")
    is_on_loop = asyncio is not None and asyncio._get_running_loop() is not None
    if is_on_loop or began < _no_wait_before:
        return
    if not request.done.acquire(True, PATIENCE):
        _no_wait_before = began + SHARE * PATIENCE


def sealed(seal: str, close: Callable[[str], None], progress: Callable[[], int], patience: float) -> None:
    """Have everything written and the segment sealed, and wait for that up to ``patience`` seconds, as long as
    ``progress()`` grows. Where no thread can be started, ``close(seal)`` does it here."""
    if not has_thread:
        close(seal)
    if not _can_wait():
        return
    request, end, seen = FlushRequest(seal), time.monotonic() + patience, -1
    _put(request)
    while not request.done.acquire(True, PATIENCE) and seen != (seen := progress()) and time.monotonic() < end:
        pass


def _can_wait() -> bool:
    return has_thread and thread.get_ident() != _thread and not sys.is_finalizing()


def write_at_once() -> None:
    """From now on, wait for the records of a call to be written when no other call is around it: somebody started this
    process, and may end it at any time."""
    closing.on_end = _ended


def _ended() -> None:
    above = context.current.get()
    try:
        if above is None or above.probe is None or above.epoch != context.epoch:
            written()
    except Exception as error:
        faults.failed("written", error)
