"""The one thread of a traced process: takes events from a queue and appends their records to the spool.

It starts with the first event, so a process that records nothing has no thread and no file. Callers only ever append to
a ``deque``: no lock, no wake-up. It writes every ``flush_interval`` seconds (what a SIGKILL can lose), and gives way to
the host's threads after every slice of work, because a thread that computes holds the interpreter for 5 ms at a time.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from autotrace.config.plan import Settings
from autotrace.record import faults
from autotrace.record.encoder import Event, Scribe
from autotrace.redact import redactor
from autotrace.spool.limit import SpoolLimit
from autotrace.spool.records import Counters, Record, Report
from autotrace.spool.segment import frame
from autotrace.spool.writer import SpoolWriter

SLICE = 0.0003
"""Seconds of work between two pauses."""
PAUSE = 0.0006
"""Seconds, long enough for a busy machine to wake the host's thread up: who comes too late finds the interpreter
taken again."""
BACKLOG = 4_000
"""Events waiting at which pauses become shorter."""
SHORT_PAUSE = 0.0001
TICK = 0.02
"""Seconds between two times that events are taken from the queue, while there are any: what waits there is looked
through by every garbage collection of the host."""
BATCH = 1 << 20
"""Bytes after which a batch is written although there is more."""
COUNTERS_EVERY = 1.0
"""Seconds between two records of counters: what a SIGKILL can lose of them."""
PATIENCE = 5.0
"""Seconds that the exit of the host waits for a write that does not come back (a network file system that hangs)."""
RETRY_EVERY = 1.0
"""Seconds between two attempts to write to a disk that failed."""
MAX_EVENTS = 100_000
"""Events waiting (about 40 MB without their token lists) beyond which not even spans of open trajectories are
opened."""
NUMBER_BYTES = 16
"""Memory of one number of a copied list: 8 for its place, and a share of the objects that the host dropped
meanwhile."""

queue: deque[Event] = deque()
"""Where callers append their events."""
handed = 0
"""Numbers in the token lists that callers copied so far, and what else is as large. Counted without a lock: a lost
update is a few too few."""
watchful = True
"""Callers have to ask ``accepts`` and ``overloaded`` first: no thread runs yet, or it is behind, or in a write that may
take its time. Asking every time would cost each call 100 ns."""
_started = False
_flusher: Flusher | None = None
_starting = threading.Lock()
on_open: Callable[[], None] | None = None
"""Called in the flusher's thread once this process has its first segment; set by ``patch``."""
calls_of: Callable[[], dict[str, int]] = dict
"""Calls per target key so far; set by ``patch``."""


def put(event: Event) -> None:
    """Hand an event over; never blocks, never raises."""
    if not watchful or accepts():
        queue.append(event)


def report(key: str, name: str, state: str, reason: str) -> None:
    """Queue what happened to a target; unlike ``put`` this starts no thread: it leaves with the first record, or at
    exit."""
    queue.append(Report(key, name, state, reason))


def full() -> bool:
    """Whether no new trajectory should begin, because too much is waiting or the spool has its size: whole ones are
    refused, never halves."""
    flusher = _flusher
    if flusher is None:
        return False
    reason = flusher.refusal()
    if reason is None:
        return False
    faults.count(reason)
    return True


def overloaded() -> bool:
    """Whether not even token lists of trajectories that are recorded may be copied: all the memory there is for what
    waits is taken. Asked while ``watchful``; counts."""
    flusher = _flusher
    if flusher is None or flusher.waiting() <= flusher.settings.memory_limit:
        return False
    faults.count("drop:tokens")
    return True


def configure(run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
    """Say where records go from now on. Without this nothing is recorded."""
    global _flusher
    stop()
    _flusher = Flusher(run_folder, run_id, settings, plan_digest)
    atexit.register(shutdown)


def shutdown() -> None:
    """Write what is waiting and seal the segment. Safe to call twice; never raises."""
    flusher = _flusher
    if flusher is None:
        return
    try:
        flusher.close()
    except Exception as error:
        faults.failed("shutdown", error)


def stop() -> None:
    """Shut down, and record nothing more until ``configure`` is called again. Never raises."""
    global _flusher
    flusher, _flusher = _flusher, None
    if flusher is None:
        return
    try:
        flusher.close()
        flusher.closed = True  # its thread may be about to drain it once more: what comes now is its successor's
    except Exception as error:
        faults.failed("shutdown", error)


def flush() -> None:
    """Write what is waiting now (tests; the host's own checkpoints)."""
    if _flusher is not None:
        _flusher.drain(pause=False)


def wake() -> None:
    """Something was counted for the first time: start the thread, so that counters are written without any span."""
    if _flusher is not None and not _started:
        _start()


def accepts() -> bool:
    """Whether there is room for another event; starts the thread if there is none. Called while ``watchful``."""
    if _flusher is None:
        return False
    if not _started:
        _start()
    if len(queue) < MAX_EVENTS:
        return True
    faults.count("drop:stuck")
    return False


def _start() -> None:
    global _started
    with _starting:
        if _started:
            return
        _started = True
        try:
            threading.Thread(target=_run, name="autotrace-flusher", daemon=True).start()
        except RuntimeError as error:  # interpreter shutting down, or no more threads: atexit writes what is left
            faults.failed("thread", error)


def _run() -> None:
    global watchful
    while True:
        flusher = _flusher
        interval = flusher.settings.flush_interval if flusher is not None else 1.0
        active = queue or (flusher is not None and flusher.unwritten)
        time.sleep(min(TICK, interval) if active else interval)
        try:
            watchful = flusher is None or flusher.behind
            if _flusher is not None:
                _flusher.drain(pause=True)
        except Exception as error:
            faults.failed("flusher", error)


def after_fork_in_child() -> None:
    """The child inherits events, lock and segment of its parent, and none of them is its own."""
    global watchful, _started, _starting, _flusher
    queue.clear()
    watchful = True
    _started = False
    _starting = threading.Lock()
    if _flusher is not None:
        _flusher = _flusher.child()


class Flusher:
    """Takes events from the queue to the file. One per process; ``drain`` is called by the thread, or by the last one
    to leave."""

    def __init__(self, run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
        self.settings = settings
        self._place = (run_folder, run_id, settings, plan_digest)
        self._writer = SpoolWriter(run_folder, run_id, plan_digest)
        self._scribe = Scribe(settings, os.getpid() << 32, self._add, run_folder)
        self._scribe.done = handed
        self._limit = SpoolLimit(run_folder, settings.spool_limit)
        self._busy = threading.Lock()
        self.closed = False
        """Stopped for good."""
        self._encode = msgspec.msgpack.Encoder(enc_hook=_unknown).encode
        self._frames: list[bytes] = []
        self._size = 0
        self._defined = 0
        """Targets whose definitions were in the batches before this one."""
        self._undefined = False
        """The segment lacks those definitions."""
        self._retry_at = 0.0
        self._written = 0.0
        self._write_took = 0.0
        """Seconds of the last write."""
        self._counted = 0.0
        self._announced = False
        self._last: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._event_bytes = 512
        """Average size of a record so far."""
        self._events = 0
        self._bytes = 0

    def child(self) -> Flusher:
        """A flusher for the forked child: own segment, nothing inherited."""
        self._writer.abandon()
        return Flusher(*self._place)

    @property
    def unwritten(self) -> bool:
        """Records are gathered that are not in the file yet."""
        return bool(self._frames)

    def waiting(self) -> int:
        """Bytes that wait to be written, about."""
        numbers = max(0, handed - self._scribe.done)
        return len(queue) * self._event_bytes + numbers * NUMBER_BYTES + self._size

    @property
    def behind(self) -> bool:
        """Half of some limit is reached."""
        return len(queue) > MAX_EVENTS // 2 or self.waiting() > self.settings.memory_limit // 2

    def refusal(self) -> str | None:
        """Why no new trajectory should begin, as a reason to be counted; None: it may."""
        if self.waiting() > self.settings.memory_limit // 2:  # the other half is for those that are open
            return "drop:memory_limit"
        coming = self._size + len(queue) * self._bytes // max(1, self._events)
        return "drop:spool_limit" if self._limit.reached(coming) else None

    def drain(self, pause: bool) -> None:
        """Write everything that waits. ``pause``: give way to the host between slices, write when it is time to."""
        if not self._busy.acquire(blocking=False):
            if pause:
                return
            if self.closed or not self._busy.acquire(timeout=PATIENCE):
                return
        try:
            if not self.closed:
                self._drain(pause)
        finally:
            self._busy.release()

    def close(self) -> None:
        """Write what waits, last counters, seal. Where its thread is in a write that does not come back, this gives up
        after ``PATIENCE``, for good: then what waits is lost, and the segment's lock tells that the process ended."""
        if self.closed:
            return
        if not self._busy.acquire(timeout=PATIENCE):
            self.closed = True
            return
        try:
            self._drain(pause=False)
            self._finish()
        finally:
            self._busy.release()

    def _drain(self, pause: bool) -> None:
        began = time.monotonic()
        write = self._scribe.write
        while queue:
            event = queue.popleft()
            try:
                write(event)
            except Exception as error:
                faults.failed(f"encode:{type(event).__name__}", error)
            if self._size >= BATCH:
                self._count_now_and_then()
                self._write()
            if pause and time.monotonic() - began > SLICE:
                self._write_if_due()
                time.sleep(PAUSE if len(queue) < BACKLOG else SHORT_PAUSE)
                began = time.monotonic()
        self._scribe.done = handed  # what lost updates and failed events left over
        if pause:
            self._write_if_due()
        else:
            self._count_now_and_then()
            self._write()

    def _finish(self) -> None:
        if self._written or self._frames:  # also after a rotation: without a last word, this process has died
            self._retry_at = 0.0
            self._count(last=True)
            self._write()
            self._writer.seal("exit")
            self._written = 0.0

    def _add(self, record: Record) -> None:
        data = self._framed(record)
        self._frames.append(data)
        self._size += len(data)
        self._events += 1
        self._bytes += len(data)
        if self._events % 256 == 0:
            self._event_bytes = max(512, self._bytes // self._events)

    def _framed(self, record: Record) -> bytes:
        try:
            return frame(self._encode(record))
        except (UnicodeEncodeError, OverflowError):  # a lone surrogate (a character cut in two), a big number
            return frame(self._encode(_readable(record)))

    def _write_if_due(self) -> None:
        """Also between two slices: a host that never pauses never leaves the queue empty. On a slow disk
        as much time goes to taking events as to writing them."""
        if time.monotonic() - self._written >= max(self.settings.flush_interval, self._write_took):
            self._count_now_and_then()
            self._write()

    def _write(self) -> None:
        """Append what was gathered. What cannot be written (disk full) is kept for the next time, up to a limit."""
        global watchful
        if not self._frames or time.monotonic() < self._retry_at:
            return
        watchful = True  # a write may take its time
        began = time.monotonic()
        try:
            if not self._writer.opened:
                self._writer.open()
                self._undefined = True
                self._announce()
            if self._undefined:
                self._define_again()
            count = self._writer.write(self._frames)
        except OSError as error:
            faults.failed("spool", error)
            count = 0
        self._written = time.monotonic()
        self._write_took = self._written - began
        watchful = not _started or self.behind  # without the thread, the next event starts it
        if count < len(self._frames):
            self._hold(count)
            return
        self._limit.look(self._size)
        self._forget_batch()
        if self._writer.full or self._limit.ends(self._writer.size):
            self._writer.seal("rotate")

    def _define_again(self) -> None:
        """A segment holds the definitions of all targets it refers to."""
        definitions = [self._framed(define) for define in self._scribe.definitions[: self._defined]]
        if definitions and self._writer.write(definitions) < len(definitions):
            raise OSError("no room for the definitions of the targets")
        self._undefined = False

    def _hold(self, count: int) -> None:
        """All but the first ``count`` frames could not be written: keep them for later, unless they became too many."""
        self._retry_at = time.monotonic() + RETRY_EVERY
        del self._frames[:count]
        self._size = sum(map(len, self._frames))
        if self._size > self.settings.memory_limit // 4:
            faults.count("drop:disk", len(self._frames))
            self._scribe.forget_tokens()
            self._forget_batch()
            self._undefined = True

    def _forget_batch(self) -> None:
        self._frames, self._size = [], 0
        self._defined = len(self._scribe.definitions)

    def _announce(self) -> None:
        if on_open is None or self._announced:
            return
        self._announced = True
        try:
            on_open()
        except Exception as error:
            faults.failed("on_open", error)

    def _count_now_and_then(self) -> None:
        if time.monotonic() - self._counted > COUNTERS_EVERY:
            self._count()

    def _count(self, last: bool = False) -> None:
        self._limit.look()
        state = (dict(calls_of()), dict(faults.counts))
        self._counted = time.monotonic()
        if state == self._last and not self._frames and not last:
            return
        self._last = state
        self._add(Counters(*state, {"queue": len(queue), "waiting_bytes": self.waiting()}, time.monotonic_ns()))


def _unknown(value: Any) -> Any:
    return {"…": f"{type(value).__module__}.{type(value).__qualname__}"}


def _readable(record: Any) -> Any:
    """``record`` with lone surrogates replaced, and numbers of more than 64 bits as text."""
    fields = {name: _scrub(getattr(record, name)) for name in record.__struct_fields__}
    return type(record)(**fields)


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if type(value) is int:
        return redactor.number(value)
    if isinstance(value, dict):
        return {_scrub(name): _scrub(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_scrub(item) for item in value)
    return value
