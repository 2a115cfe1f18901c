"""Run the single thread of a traced process: take events from the backlog and append the records to the spool.

The thread starts with the first event, so a process that records nothing has no thread and no file. The thread writes
every ``flush_interval`` seconds (the loss by a SIGKILL) and on request (``flush_requests``), and gives way to the
host's threads after every slice of work, because a thread that computes holds the interpreter for 5 ms at a time."""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable

from autotrace.config.originals import thread, time
from autotrace.config.plan import Settings
from autotrace.record import faults, flush_requests, garbage, iterators, origin, own_thread
from autotrace.record.backlog import backlog
from autotrace.record.encoder import RecordEncoder
from autotrace.record.record_writer import RecordWriter
from autotrace.run import drain, host_timers
from autotrace.spool.records import Counters

SLICE = 0.0003
"""Holds the seconds of work between two pauses. Doubled with each 1/16 of the memory limit that is taken, and with each
``LATE`` seconds for which the next event has waited, up to ``LONG_SLICE``: on a busy machine a pause takes
milliseconds."""
LATE = 0.2
LONG_SLICE = 0.004
"""Holds seconds. After 5 ms this thread would lose the interpreter, if another thread wants the interpreter."""
PAUSE = 0.0006
"""Holds seconds, enough for a busy machine to wake the host's thread before this thread goes on."""
LONG_QUEUE = 4_000
"""Limits the waiting events at which pauses become ``SHORT_PAUSE``."""
SHORT_PAUSE = 0.0001
HEAVY = 1 << 18
"""Counts the bytes of an event before which gathered records are written: a kill during the cleaning costs no more."""
SLOW = 10
"""After an event slower than ``flush_interval``, write before each event for this many times as long."""
TICK = 0.02
"""Holds the seconds between two takes from a queue with events: each collection of the host scans the events."""
COUNTERS_EVERY = 1.0
"""Holds the seconds between two records of counters: a SIGKILL loses the counts of this time."""
PATIENCE = 5.0
"""Holds the seconds without progress after which the host's exit waits no longer for a write (a network file system
that hangs). While there is progress, the exit waits as long as the run may wait for delivery, and this long in any
case: a run without a wait for delivery (``--drain-timeout 0``) still writes all records."""

_started = False
_flusher: Flusher | None = None
_thread = 0
"""Holds the number of the running thread. A thread that was started earlier ends when the thread wakes up."""
on_open: Callable[[], None] | None = None
"""Called in the flusher's thread once this process has a first segment; set by ``patch``."""
calls_of: Callable[[], dict[str, int]] = dict
"""Counts calls per target key so far; set by ``patch``."""
paths_of: Callable[[], dict[str, tuple[int, int]]] = dict
"""Counts ``Counters.paths`` so far; set by ``patch``."""


def configure(run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
    """Set the destination of records from now on. Without ``configure`` nothing is recorded."""
    stop()
    backlog.clear()  # later events belong to no run
    faults.counts.clear()
    _use(Flusher(run_folder, run_id, settings, plan_digest))
    garbage.watch()
    atexit.register(shutdown)


def shutdown() -> None:
    """Write all waiting records and seal the segment. Safe to call twice; never raises."""
    flusher = _flusher
    if flusher is None:
        return
    try:
        with host_timers.held():
            flusher.close()
    except Exception as error:
        faults.failed("shutdown", error)


def stop() -> None:
    """Stop the flusher and record nothing more until ``configure`` is called again. Never raises."""
    flusher = _flusher
    _use(None)
    atexit.unregister(shutdown)
    if flusher is None:
        return
    try:
        flusher.close()
        flusher.closed = True  # the thread may be about to drain again: new events belong to the next flusher
    except Exception as error:
        faults.failed("shutdown", error)


def flush() -> None:
    """Write all waiting records now (tests; the host's own checkpoints)."""
    if _flusher is not None:
        _flusher.drain(pause=False)


def leave(seal: str) -> None:
    """Write waiting records and seal the segment (``""``: not yet) before the process ends without Python's exit."""
    flusher = _flusher
    if flusher is not None and _started:  # else nothing was recorded
        flush_requests.sealed(seal, flusher.close, lambda: flusher._progress, PATIENCE)


def after_fork_in_child() -> None:
    """Discard the events, the lock and the segment that the child inherits from the parent."""
    backlog.clear()
    own_thread.after_fork_in_child()
    flush_requests.write_at_once()
    faults.counts.clear()  # counters are summed over processes
    if _flusher is not None:
        _use(_flusher.child())


def _use(flusher: Flusher | None) -> None:
    """Let the next event start a thread: the running thread may be asleep for the interval of the previous flusher."""
    global _flusher, _started, _thread
    _flusher, _started, _thread = flusher, False, 0
    flush_requests.forget()
    backlog.connect(flusher, 0 if flusher is None else flusher.settings.memory_limit)


def _start() -> None:
    global _started  # without a lock: an exception of the host's could leave the lock held
    _started = True  # of two threads started at once the first ends
    try:
        own_thread.start(_run)
    except RuntimeError as error:  # interpreter shutting down, or no more threads: atexit writes the rest
        flush_requests.has_thread = False
        if "shutdown" not in str(error):
            faults.failed("thread", error)
    except BaseException:  # the host's, on the host's thread: the next event starts another thread
        _started = False
        raise


def _run() -> None:
    global _thread
    origin.own_thread()
    _thread = own = thread.get_ident()
    while _thread == own and (flusher := _flusher) is not None:  # `stop` may have come before the thread ran
        interval = flusher.settings.flush_interval
        requests = flush_requests.take(min(TICK, interval) if backlog.queue or flusher._writer.gathered else interval)
        own_thread.settle()
        try:
            if _thread != own:
                break
            backlog.watchful = backlog.behind
            garbage.watch()
            if _flusher is not None:
                iterators.settle()
                _flusher.drain(pause=not requests)
                for seal in [request.seal for request in requests if request.seal]:
                    _flusher.close(seal)
        except Exception as error:
            faults.failed("flusher", error)
        finally:
            for request in requests:
                request.done.release()
    backlog.watchful = True  # set last: this thread may have cleared the flag after the next flusher set the flag


class Flusher:
    """Takes events from the backlog to the file. One per process; the thread, or the last to leave, calls ``drain``."""

    def __init__(self, run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
        self.settings = settings
        self._made_with = (run_folder, run_id, settings, plan_digest)
        self._writer = RecordWriter(run_folder, run_id, settings, plan_digest)
        self._encoder = RecordEncoder(settings, os.getpid() << 32, self._writer.add, run_folder)
        self._writer.lost = self._encoder.forget_tokens
        self._writer.opened = _opened
        self._busy = thread.allocate_lock()
        self._closing = False
        """Tells whether the host exits, in another thread, and wants to drain."""
        self._progress = 0
        """Counts slices of work and writes."""
        self._encoding = False
        """Tells whether an event was taken and is not gathered yet."""
        self._slow_until = 0.0
        """Holds the end of ``SLOW``; monotonic seconds."""
        self.closed = False
        """Tells whether the flusher stopped for good."""
        self._counted_at = 0.0
        self._last_counts: tuple[dict[str, int], dict[str, int], dict[str, tuple[int, int]]] = ({}, {}, {})

    def start(self) -> None:
        """Start the thread unless the thread runs."""
        if not _started:
            _start()

    def child(self) -> Flusher:
        """Return a flusher for the forked child: own segment, nothing inherited."""
        self._writer.abandon()
        child = Flusher(*self._made_with)
        child._writer.inherit(self._writer)
        return child

    def spool_full(self, events: int) -> bool:
        """Tells whether the spool reaches its size limit once ``events`` more are written."""
        return self._writer.full(events)

    def drain(self, pause: bool) -> None:
        """Write everything that waits. ``pause``: give way to the host between slices, write when a write is due."""
        if pause and self._closing:
            return
        if not self._busy.acquire(blocking=False):
            if pause:
                return
            if self.closed or not self._acquire(math.inf):
                return
        try:
            if not self.closed:
                self._drain(pause)
        finally:
            self._busy.release()

    def close(self, seal: str = "exit") -> None:
        """Write all waiting records and the last counters, then seal: as long as there is progress, up to the run's
        drain timeout (at least ``PATIENCE``), even while daemon threads of the host record. Where the flusher's
        thread hangs in a write, ``close`` gives up after ``PATIENCE``, for good: waiting records are lost and counted,
        and the lock of the segment shows that the process ended."""
        if self.closed:
            return
        deadline = time.monotonic() + max(PATIENCE, drain.timeout_of(self._made_with[0]))
        self._closing = True
        if not self._acquire(deadline):
            self.closed = True
            _lost(len(backlog.queue) + self._encoding + self._writer.gathered)
            return
        try:
            iterators.settle_dropped()
            iterators.settle(idle_ns=0)
            iterators.end_open()
            if _lost(self._drain(pause=False, deadline=deadline)):
                backlog.clear()
            if self._encoder.roots is not None:
                self._encoder.roots.settle(last=True)
            backlog.settle(last=True)
            self._writer.finish(self._count, seal)
        finally:
            self._closing = False
            self._busy.release()

    def _acquire(self, deadline: float) -> bool:
        """Take over from the thread, which stops after the slice of work; False: the thread makes no progress."""
        seen, since = self._progress, time.monotonic()
        while not self._busy.acquire(timeout=min(0.1, PATIENCE)):
            now = time.monotonic()
            if self._progress != seen:
                seen, since = self._progress, now
            elif now - since > PATIENCE:
                return False
            if now > deadline:
                return False
        return True

    def _drain(self, pause: bool, deadline: float = math.inf) -> int:
        """Write waiting events until ``deadline``; return how many events of the start are left."""
        iterators.settle_dropped()
        if self._encoder.roots is not None:
            self._encoder.roots.settle()
        began = time.monotonic()
        end = began + self._slice(began)
        slow = began < self._slow_until
        queue, take, write = backlog.queue, backlog.take, self._encoder.write
        left = sys.maxsize if pause else len(queue)
        while left and queue:
            left -= 1
            if (slow or getattr(queue[0], "weight", 0) > HEAVY) and self._writer.may_write:
                self._write()
                began = time.monotonic()
            self._encoding = True
            event = take()
            try:
                write(event)
            except Exception as error:
                faults.failed(f"encode:{type(event).__name__}", error)
            self._encoding = False
            if self._writer.batch_full:
                self._write()
            if (now := time.monotonic()) > end:
                self._progress += 1
                if now - began > self.settings.flush_interval:
                    self._slow_until = max(self._slow_until, now + SLOW * (now - began))
                slow = now < self._slow_until
                if now > deadline or (pause and self._closing):
                    break
                if pause and not flush_requests.is_pending():
                    if self._writer.due:  # a host that never pauses never leaves the queue empty
                        self._write()
                    time.sleep(PAUSE if len(queue) < LONG_QUEUE else SHORT_PAUSE)
                began = time.monotonic()
                end = began + self._slice(began)
        if not pause or self._writer.due:
            self._write()
        return min(left, len(queue))

    @staticmethod
    def _slice(now: float) -> float:
        """Return the seconds of work before the next pause: the more events wait, and the longer, the more."""
        queue = backlog.queue
        waited = now - getattr(queue[0], "at", now * 1e9) / 1e9 if queue else 0.0
        doubled = int(16 * min(1.0, backlog.pressure)) + int(min(2.0, max(0.0, waited)) / LATE)
        return float(min(LONG_SLICE, SLICE * 2**doubled))

    def _write(self) -> None:
        self._count_now_and_then()
        backlog.watchful = True  # a write may take long
        try:
            self._writer.write()
            self._progress += 1
        finally:
            backlog.watchful = not _started or backlog.behind  # without the thread, the next event starts a thread

    def _count_now_and_then(self) -> None:
        if time.monotonic() - self._counted_at <= COUNTERS_EVERY:
            return
        backlog.settle()
        self._writer.look()
        if self._writer.gathered or self._counts() != self._last_counts:
            self._count()

    def _count(self) -> None:
        self._counted_at = time.monotonic()
        self._last_counts = self._counts()
        calls, drops, paths = self._last_counts
        gauges = {"queue": len(backlog.queue), "waiting_bytes": backlog.waiting()}
        self._writer.add(Counters(calls, drops, gauges, time.monotonic_ns(), paths))

    def _counts(self) -> tuple[dict[str, int], dict[str, int], dict[str, tuple[int, int]]]:
        return dict(calls_of()), dict(faults.counts), paths_of()


def _lost(records: int) -> bool:
    """Count the records that this process gives up at exit; return whether any record was lost."""
    if records:
        faults.count("drop:exit", records)
    return records > 0


def _opened() -> None:
    if on_open is not None:
        on_open()
