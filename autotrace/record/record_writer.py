"""Write records as frames, gathered and appended to the spool with a single system call. Only the flusher's thread runs
this module.

Frames that cannot be written (a full disk) are held for the next time, up to a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

import msgspec

from autotrace.config.originals import time
from autotrace.config.plan import Settings
from autotrace.config.scalars import integer
from autotrace.record import faults
from autotrace.record.backlog import WhenRecording, backlog
from autotrace.run import files, layout
from autotrace.run.losses import DISK_FULL
from autotrace.spool.records import Close, Define, Open, Record
from autotrace.spool.segment import frame
from autotrace.spool.writer import SpoolLimit, SpoolWriter
from autotrace.trajectory.jsonable import Conversion

BATCH = 1 << 20
"""Limits the bytes after which a batch is written although more records wait."""
MAX_WRITTEN = 32 << 20
"""Limits the bytes of a written frame, below the readable ``spool.records.MAX_FRAME``. No backend takes a larger
record, and a larger record would have to fit into the shipper's memory several times."""
_CUTS: dict[type, tuple[dict[str, Any], ...]] = {
    Open: ({"inputs": ...}, {"attributes": None}, {"prompt": None}),
    Close: ({"output": ...}, {"attributes": None, "error": None}, {"response": None, "logprobs": None, "mask": None}),
}
"""Lists the fields that are left out of a too large record, in turn (``...``: a note replaces the value)."""
RETRY_EVERY = 1.0
"""Holds the seconds between two attempts to write to a disk that failed."""


class RecordWriter:
    """Writes the records of a process. ``lost`` is called when records were given up, ``opened`` when the first segment
    exists."""

    def __init__(self, run_folder: str, run_id: str, settings: Settings, plan_digest: str) -> None:
        self.lost: Callable[[], None] = _nothing
        self.opened: Callable[[], None] = _nothing
        self._settings = settings
        self._folder = run_folder
        self._segments = SpoolWriter(run_folder, run_id, plan_digest)
        self._limit = SpoolLimit(run_folder, settings.spool_limit)
        self._encode = msgspec.msgpack.Encoder(enc_hook=_unknown).encode
        self._frames: list[bytes] = []
        self._size = 0
        self._held: list[Record] = []
        """Holds reports that are written with the first record."""
        self._definitions: list[Define] = []
        """Lists the targets so far; each segment begins with the targets of the segments before."""
        self._defined = 0
        """Counts the definitions that were in the batches before this batch."""
        self._undefined = False
        """Tells whether the segment lacks those definitions."""
        self._opened_once = False
        self._retry_at = 0.0
        self._written_at = 0.0
        self._write_took = 0.0
        """Holds the seconds of the last write."""
        self._records = 0
        self._bytes = 0

    @property
    def gathered(self) -> int:
        """Count the gathered records that are not in the file yet."""
        return len(self._frames)

    @property
    def may_write(self) -> bool:
        """Tells whether records wait, and taking events took as much time as the last write."""
        return bool(self._frames) and time.monotonic() - self._written_at >= self._write_took

    @property
    def batch_full(self) -> bool:
        """Tells whether the batch alone is so large that a write is due."""
        return self._size >= BATCH

    @property
    def due(self) -> bool:
        """Tells whether a write is due. On a slow disk as much time goes to taking events as to writing."""
        return bool(time.monotonic() - self._written_at >= max(self._settings.flush_interval, self._write_took))

    def full(self, events: int) -> bool:
        """Tells whether the spool reaches its size limit once ``events`` more are written."""
        return self._limit.reached(self._size + events * self._bytes // max(1, self._records))

    def look(self) -> None:
        """Read the size of the spool from the folder, now and then."""
        self._limit.look()

    def add(self, said: Record | WhenRecording) -> None:
        """Gather a record for the next write."""
        record = said.report if isinstance(said, WhenRecording) else said
        if record is not said and not self._written_at and not self._frames:
            self._held.append(record)
            return
        if self._held:
            held, self._held = self._held, []
            for report in held:
                self.add(report)
        if type(record) is Define:
            self._definitions.append(record)
        data = self._framed(record)
        if len(data) > MAX_WRITTEN:
            shortened = self._shortened(record, len(data))
            if shortened is None:
                return
            data = shortened
        self._frames.append(data)
        self._size += len(data)
        backlog.encoded(self._size)
        self._records += 1
        self._bytes += len(data)

    def write(self) -> None:
        """Append the gathered records."""
        if not self._frames or time.monotonic() < self._retry_at:
            return
        began = time.monotonic()
        try:
            if not self._segments.opened:
                self._segments.open()
                self._undefined = True
                self._announce()
            if self._undefined:
                self._define_again()
            count = self._segments.write(self._frames)
        except OSError as error:
            self._segments.error = error
            faults.failed("spool", error)
            count = 0
        self._written_at = time.monotonic()
        self._write_took = self._written_at - began
        if count < len(self._frames):
            self._hold(count)
            return
        self._limit.look(self._size)
        self._forget_batch()
        if self._segments.full or self._limit.ends(self._segments.size):
            self._segments.seal("rotate")

    def finish(self, last_words: Callable[[], None], seal: str = "exit") -> None:
        """Seal the segment after ``last_words`` were added. Does nothing if this process wrote nothing and has nothing
        to write. Also seals after a rotation: a process without a last word counts as dead. Records that the disk does
        not take are given up and counted."""
        if not self._written_at and not self._frames:
            return
        self._retry_at = 0.0
        waited = len(self._frames)
        last_words()
        self.write()
        lost = min(waited, len(self._frames))
        if lost:
            faults.count(self._loss("drop:exit"), lost)
            self.lost()  # later records must not refer to the tokens of lost records
        self._forget_batch()
        self._segments.seal(seal)
        self._written_at = 0.0

    def _loss(self, reason: str) -> str:
        """Return the reason for which records are given up: ``reason``, unless the disk is full. A full disk leaves a
        mark, which takes no room: counters may not come into a file any more."""
        error = self._segments.error
        if error is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return reason
        with contextlib.suppress(OSError):
            files.touch(os.path.join(self._folder, layout.DISK_FULL))
        return f"{DISK_FULL}{self._folder}"

    def inherit(self, other: RecordWriter) -> None:
        """Take over the held reports of ``other``, the writer of this process before the fork."""
        self._held = [*other._held]

    def abandon(self) -> None:
        """Close the file without a word: a forked child closes the parent's segment this way."""
        self._segments.abandon()

    def _framed(self, record: Record) -> bytes:
        try:
            return frame(self._encode(record))
        except (UnicodeEncodeError, OverflowError):  # a lone surrogate (a character cut in two), a big number
            return frame(self._encode(_readable(record)))

    def _shortened(self, record: Record, size: int) -> bytes | None:
        """Return the frame of a too large record without the large fields; None: no part can be written."""
        faults.count("drop:too_large")
        left_out = {"…": f"left out: the record would have {size} bytes, more than {MAX_WRITTEN}"}
        for change in _CUTS.get(type(record), ()):
            change = {name: left_out if value is ... else value for name, value in change.items()}
            record = msgspec.structs.replace(record, **change)
            data = self._framed(record)
            if "prompt" in change or "response" in change:
                self.lost()  # later records must not refer to these tokens
            if len(data) <= MAX_WRITTEN:
                return data
        return None

    def _define_again(self) -> None:
        """Write the definitions of all targets into a new segment: a segment holds each definition that the segment
        refers to."""
        definitions = [self._framed(define) for define in self._definitions[: self._defined]]
        if definitions and self._segments.write(definitions) < len(definitions):
            raise OSError("no room for the definitions of the targets")
        self._undefined = False

    def _hold(self, count: int) -> None:
        """Keep all frames after the first ``count`` for a later write, unless the frames became too many."""
        self._retry_at = time.monotonic() + RETRY_EVERY
        del self._frames[:count]
        self._size = sum(map(len, self._frames))
        if self._size > self._settings.memory_limit // 4:
            faults.count(self._loss("drop:disk"), len(self._frames))
            self.lost()
            self._forget_batch()
            self._undefined = True
        backlog.encoded(self._size)

    def _forget_batch(self) -> None:
        self._frames, self._size = [], 0
        self._defined = len(self._definitions)
        backlog.encoded(0)

    def _announce(self) -> None:
        if self._opened_once:
            return
        self._opened_once = True
        try:
            self.opened()
        except Exception as error:
            faults.failed("on_open", error)


def _nothing() -> None:
    pass


def _unknown(value: Any) -> Any:
    return {"…": f"{type(value).__module__}.{type(value).__qualname__}"}


class _Encodable(Conversion):
    """Converts a value for msgpack: bytes stay, lone surrogates are replaced, numbers of more than 64 bits become
    text."""

    def integer(self, value: int) -> Any:
        return integer(value)

    def not_finite(self, value: float) -> Any:
        return value

    def bytes(self, value: bytes | bytearray) -> Any:
        return bytes(value)

    def other(self, value: Any) -> Any:
        return value


_encodable = _Encodable()


def _readable(record: Any) -> Any:
    """Return ``record`` with the values that the encoder declined in another form."""
    return type(record)(**{name: _encodable(getattr(record, name)) for name in record.__struct_fields__})
