"""The one thread of a traced process: takes events from a queue, turns them into records, appends them to the spool.

It starts with the first event, so a process that records nothing has no thread and no file. Callers only ever append to
a ``deque``: no lock, no wake-up. It writes every ``flush_interval`` seconds (what a SIGKILL can lose), and gives way to
the host's threads after every slice of work, because a thread that computes holds the interpreter for 5 ms at a time.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from autotrace.record import faults
from autotrace.record.redact import Redactor
from autotrace.record.tokens import Prompt, TokenLog
from autotrace.spec.plan import Settings
from autotrace.spool.records import Bind, Close, Counters, Define, Fact, Open, Record, Report, Tokens
from autotrace.spool.segment import frame
from autotrace.spool.writer import SpoolWriter

OPEN, CLOSE, FACT, BIND, REPORT = range(5)
"""First element of an event; what follows is unpacked by the method of the same name."""

SLICE = 0.0003
"""Seconds of work between two pauses."""
PAUSE = 0.00005
BATCH = 1 << 20
"""Bytes after which a batch is written although there is more."""
COUNTERS_EVERY = 1.0
"""Seconds between two records of counters: what a SIGKILL can lose of them."""
MAX_EVENTS = 2_000_000
"""Beyond this not even the events of open trajectories are kept: the disk must have been stuck for minutes."""

_queue: deque[tuple[Any, ...]] = deque()
_append = _queue.append
_thread: threading.Thread | None = None
_flusher: Flusher | None = None
_starting = threading.Lock()
on_open: Callable[[], None] | None = None
"""Called in the flusher's thread once this process has its first segment; set by ``patch``."""
calls_of: Callable[[], dict[str, int]] = dict
"""Calls per target key so far; set by ``patch``."""


def put(event: tuple[Any, ...]) -> None:
    """Hand an event over; never blocks, never raises."""
    if _flusher is None:
        return
    _append(event)
    if _thread is None:
        _start()


def report(key: str, name: str, state: str, reason: str) -> None:
    """Queue what happened to a target; unlike ``put`` this starts no thread: it leaves with the first record, or at exit."""
    _append((REPORT, key, name, state, reason))


def wake() -> None:
    """Something was counted for the first time: start the thread, so that counters are written without any span."""
    if _flusher is not None and _thread is None:
        _start()


def full() -> bool:
    """Whether so much is waiting to be written that no new trajectory should begin (whole ones are refused, not halves)."""
    flusher = _flusher
    if flusher is None or len(_queue) * flusher.event_bytes < flusher.settings.memory_limit:
        return False
    faults.count("drop:memory_limit")
    return True


def configure(run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
    """Say where records go. Without this nothing is recorded."""
    global _flusher
    _flusher = Flusher(run_folder, run_id, settings, plan_digest)
    atexit.register(shutdown)


def shutdown() -> None:
    """Write what is waiting and seal the segment. Safe to call twice; never raises."""
    flusher = _flusher
    if flusher is None:
        return
    try:
        flusher.drain(pause=False)
        flusher.finish()
    except Exception as error:
        faults.failed("shutdown", error)


def flush() -> None:
    """Write what is waiting now (tests; the host's own checkpoints)."""
    if _flusher is not None:
        _flusher.drain(pause=False)


def _start() -> None:
    global _thread
    with _starting:
        if _thread is not None:
            return
        try:
            thread = threading.Thread(target=_run, name="autotrace-flusher", daemon=True)
            _thread = thread
            thread.start()
        except RuntimeError as error:  # interpreter shutting down, or no more threads: atexit writes what is left
            faults.failed("thread", error)


def _run() -> None:
    while True:
        time.sleep(_flusher.settings.flush_interval if _flusher is not None else 1.0)
        try:
            if _flusher is not None:
                _flusher.drain(pause=True)
        except Exception as error:
            faults.failed("flusher", error)


def after_fork_in_child() -> None:
    """The child inherits events, lock and segment of its parent, and none of them is its own."""
    global _thread, _starting, _flusher
    _queue.clear()
    _thread = None
    _starting = threading.Lock()
    if _flusher is not None:
        _flusher = _flusher.child()


class Flusher:
    """Turns events into frames. One per process; ``drain`` is called by the thread, or by the last one to leave."""

    def __init__(self, run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
        self.settings = settings
        self.event_bytes = 512
        """Average size of a recorded event so far, for ``full``."""
        self.epoch = os.getpid()
        self._place = (run_folder, run_id, settings, plan_digest)
        self._writer = SpoolWriter(run_folder, run_id, plan_digest)
        self._redactor: Redactor | None = None
        self._busy = threading.Lock()
        self._encode = msgspec.msgpack.Encoder(enc_hook=_unknown).encode
        self._names: dict[tuple[str, str], int] = {}
        self._frames: list[bytes] = []
        self._size = 0
        self._counted = 0.0
        self._last: tuple[Any, ...] = ()
        self._events = 0
        self._bytes = 0
        self._announced = False

    def child(self) -> Flusher:
        """A flusher for the forked child: own segment, nothing inherited."""
        self._writer.abandon()
        return Flusher(*self._place)

    def drain(self, pause: bool) -> None:
        """Write everything that waits. ``pause``: give way to the host between slices."""
        if not self._busy.acquire(blocking=False):
            if pause:
                return
            if not self._busy.acquire(timeout=5.0):
                return
        try:
            self._drain(pause)
        finally:
            self._busy.release()

    def _drain(self, pause: bool) -> None:
        began = time.monotonic()
        while _queue:
            event = _queue.popleft()
            try:
                self._record(event)
            except Exception as error:
                faults.failed(f"encode:{event[0]}", error)
            if self._size >= BATCH:
                self._write()
            if pause and time.monotonic() - began > SLICE:
                time.sleep(PAUSE)
                began = time.monotonic()
        if self._frames or time.monotonic() - self._counted > COUNTERS_EVERY:
            self._count()
        self._write()

    def finish(self) -> None:
        """Last counters, seal."""
        with self._busy:
            if self._writer.opened or self._frames:
                self._count()
                self._write()
                self._writer.seal("exit")
                self._names.clear()

    # -- events to records ------------------------------------------------------------------------------------------

    def _record(self, event: tuple[Any, ...]) -> None:
        kind = event[0]
        if kind == OPEN:
            self._open(*event[1:])
        elif kind == CLOSE:
            self._close(*event[1:])
        elif kind == FACT:
            trace, key, name, value, at = event[1:]
            self._add(Fact(trace, key, name, self._clean(name, value), at))
        elif kind == BIND:
            name, value, at = event[1:]
            self._add(Bind(name, self._clean(name, _plain(value)), at))
        else:
            self._add(Report(*event[1:]))

    def _open(self, span: Any, inputs: dict[str, Any], attributes: Any, prompt: list[int] | None, at: int) -> None:
        probe = span.probe
        name = probe.label or getattr(span.function, "__qualname__", None) or probe.key
        target = self._target(probe.key, name, probe.role, getattr(span.function, "__module__", "") or "")
        tokens = None
        if prompt is not None:
            log = self._log(span)
            if log is None:
                tokens, span.prompt = TokenLog(self.epoch).prompt(prompt, withheld=True)
            else:
                tokens, span.prompt = log.prompt(prompt, self.settings.content == "none")
        cleaned = {key: self._clean(key, value) for key, value in inputs.items()} if inputs else None
        self._add(
            Open(
                span.id,
                span.trace.id,
                span.parent,
                target,
                at,
                cleaned,
                None if attributes is None else {key: self._clean(key, value) for key, value in attributes.items()},
                tokens,
            )
        )

    def _close(
        self,
        span: Any,
        status: str,
        output: Any,
        attributes: Any,
        error: Any,
        response: list[int] | None,
        logprobs: list[float] | None,
        mask: list[int] | None,
        at: int,
        skip: int,
    ) -> None:
        tokens: Tokens | None = None
        if span.timeline is not None:
            attributes, response, skip = self._request(span, attributes, response, skip)
        if response is not None:
            log = self._log(span)
            withheld = self.settings.content == "none" or log is None
            log = log or TokenLog(self.epoch)
            prompt = span.prompt if isinstance(span.prompt, Prompt) else None
            if skip:
                tokens, _ = log.prompt(response, withheld)  # prompt and response in one: most of it is known
            else:
                tokens = log.response(prompt, response, withheld)
            span.prompt = None
        self._add(
            Close(
                span.id,
                span.trace.id,
                at,
                status,
                self._clean("result", output),
                None if attributes is None else {key: self._clean(key, value) for key, value in attributes.items()},
                None if error is None else self._error(*error),
                tokens,
                None if not logprobs else array("f", logprobs).tobytes(),
                None if not mask else bytes(1 if flag else 0 for flag in mask),
                span.items,
                span.first_item_at,
                skip,
            )
        )

    def _request(
        self, span: Any, attributes: Any, response: list[int] | None, skip: int
    ) -> tuple[dict[str, Any], list[int] | None, int]:
        """What an engine's adapter learnt about the request: its timings and, over all chunks, its tokens."""
        timeline, span.timeline = span.timeline, None
        try:
            generated = timeline.response() if timeline.response is not None else None
            if generated is not None:
                response, skip = list(generated), 0
            count = None if response is None else len(response)
            attributes = {**timeline.read(span.opened_at, count), **(attributes or {})}
            if response is not None and span.prompt is None and timeline.prompt:
                response, skip = [*timeline.prompt, *response], len(timeline.prompt)
        except Exception as error:
            faults.failed("timeline", error)
        return attributes, response, skip

    def _log(self, span: Any) -> TokenLog | None:
        """The token log of the span's trace; None when another process records the tokens of this call."""
        trace = span.trace
        if trace.elsewhere:
            return None
        log: TokenLog | None = trace.tokens
        if log is None or log.epoch != self.epoch:
            log = trace.tokens = TokenLog(self.epoch)
        return log

    def _error(self, kind: str, arguments: Any, frames: list[tuple[str, int | None, str]]) -> tuple[str, str, str]:
        if self.settings.content == "none":
            message = ""
        elif isinstance(arguments, list) and len(arguments) == 1:
            message = str(self._clean("message", arguments[0]))
        else:
            message = str(self._clean("message", arguments) or "")
        stack = "\n".join(f'  File "{file}", line {line}, in {name}' for file, line, name in frames)
        return kind, message, stack

    def _clean(self, name: str, value: Any) -> Any:
        if value is None or type(value) in (bool, float):
            return value
        try:
            if self._redactor is None:
                self._redactor = Redactor(self.settings)
            return self._redactor.clean(name, value)
        except Exception as error:  # a redaction hook or pattern of the user's: what it could not clean is not written
            faults.failed("redact", error)
            return {"…": "redaction failed"}

    def _target(self, key: str, name: str, role: str, module: str) -> int:
        self._ready()
        number = self._names.get((key, name))
        if number is None:
            number = self._names[key, name] = len(self._names) + 1
            self._add(Define(number, key, name, role, module))
        return number

    # -- records to the file ----------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """A segment is open; names belong to the segment they were defined in."""
        if self._writer.opened and self._writer.full:
            self._write()
            self._writer.seal("rotate")
        if not self._writer.opened:
            self._names.clear()
            self._writer.open()
            if on_open is not None and not self._announced:
                self._announced = True
                try:
                    on_open()
                except Exception as error:
                    faults.failed("on_open", error)

    def _add(self, record: Record) -> None:
        try:
            payload = self._encode(record)
        except UnicodeEncodeError:  # a lone surrogate: model output cut in the middle of a character
            payload = self._encode(_readable(record))
        data = frame(payload)
        self._frames.append(data)
        self._size += len(data)
        self._events += 1
        self._bytes += len(data)
        if self._events % 256 == 0:
            self.event_bytes = max(512, self._bytes // self._events)

    def _write(self) -> None:
        frames, self._frames, self._size = self._frames, [], 0
        if not frames:
            return
        try:
            if not self._writer.opened:
                self._ready()
            self._writer.write(frames)
        except OSError as error:
            faults.failed("spool", error)
            faults.count("drop:disk", len(frames))
            if not self._writer.opened:
                self._names.clear()

    def _count(self) -> None:
        state = (dict(calls_of()), dict(faults.counts), {"queue": len(_queue)})
        if state[:2] == self._last[:2] and not self._frames:
            return
        self._last = state
        self._counted = time.monotonic()
        self._add(Counters(*state, time.monotonic_ns()))


def _unknown(value: Any) -> Any:
    return {"…": f"{type(value).__module__}.{type(value).__qualname__}"}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _readable(record: Any) -> Any:
    """``record`` with lone surrogates replaced."""
    fields = {name: _scrub(getattr(record, name)) for name in record.__struct_fields__}
    return type(record)(**fields)


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_scrub(name): _scrub(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_scrub(item) for item in value)
    return value
