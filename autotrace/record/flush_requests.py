"""Request a write from the flusher's thread, and wait for the write within bounds.

A process that another process started may end as soon as the result is out: ``Pool.terminate`` and ``ray.kill`` send a
signal, ``multiprocessing`` leaves by ``os._exit``. So when the outermost call ends there, the caller waits until the
call's records are in the file. The flusher's thread writes, never the caller. A file system that hangs holds the caller
for ``PATIENCE`` at most, once, and for a twentieth of the time after that.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from autotrace.config.originals import thread, time
from autotrace.record import closing, context, faults, origin
from autotrace.run import gc_pause

PATIENCE = 0.5
"""Holds the seconds that a caller waits at most. A caller on an event loop does not wait: the loop serves other
rollouts."""
SHARE = 20
"""After a wait in vain, let nobody wait for this many times as long."""


class FlushRequest:
    """Requests a write at once. ``seal``: the reason for which the segment ends after the write, or ``""``."""

    __slots__ = ("done", "seal")

    def __init__(self, seal: str = "") -> None:
        self.done = _new_lock()
        self.done.acquire()
        self.seal = seal


_new_lock = thread.allocate_lock
_queue: deque[FlushRequest] = deque()
_wake = thread.allocate_lock()
"""Wakes the flusher's thread, which waits for this lock; a request releases the lock. A wait for a lock raises nothing
at the timeout, and ``gc_pause.released`` needs a wait that does not raise."""
_thread = 0
"""Holds the number of the flusher's thread."""
has_thread = True
"""Tells whether the flusher's thread can be started."""
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
    """Tells whether somebody waits."""
    return bool(_queue)


def written() -> None:
    """Request a write of everything recorded so far, and wait for the write."""
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
    """Request a write of everything and the seal of the segment, and wait up to ``patience`` seconds, as long as
    ``progress()`` grows. Where no thread can be started, the caller runs ``close(seal)``."""
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
    """From now on, wait for the records of a call to be written when no other call is around the call: somebody started
    this process, and may end the process at any time."""
    closing.on_end = _ended


def _ended() -> None:
    above = context.current.get()
    try:
        if above is None or above.probe is None or above.epoch != context.epoch:
            written()
    except Exception as error:
        faults.failed("written", error)
