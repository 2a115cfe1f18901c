"""Read segments: the files of a run, the records inside, the living writers. The reader trusts no file or record.

Nothing is held open between two reads (a run may have hundreds of writers). The reader passes over a symbolic link, a
directory or a pipe in the spool folder. A record that does not validate is counted and skipped, never raised.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autotrace.run import files, layout
from autotrace.spool.records import FORMAT, MAGIC, MAX_FRAME, Header, Record, Seal
from autotrace.spool.segment import PREFIX, PREFIX_SIZE, Torn, read_frames

_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Undecodable(Exception):
    """Reports a payload that is not a record; the message says why in two words."""


def decode(payload: bytes | memoryview) -> Record:
    """Decode the record in ``payload``. Raises ``Undecodable`` for anything hostile, damaged or of an unknown kind."""
    try:
        return _decoder.decode(payload)
    except msgspec.ValidationError as error:
        raise Undecodable("unknown kind" if str(error).endswith("`$[0]`") else "invalid record") from None
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError, MemoryError):
        raise Undecodable("not decodable") from None


_DENSE = bytes([*range(0x80, 0xA8), 0xC0, 0xCC, 0xCD, 0xD0, 0xD1])
"""First bytes of values that take far more memory than bytes: maps, lists, short texts, nil, short integers."""
VALUES, BYTES = 500_000, 16
"""Limits of a ``Budget``: a number of values, and the bytes that allow another value."""
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
          0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_COUNTED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
            0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
"""Maps a first byte to the bytes of the length that follows, and the bytes that the length does not count."""


class Budget:
    """Bounds the memory of records that are decoded together: one read of a segment, or one trajectory.

    A byte of msgpack can become an empty dict of 64 bytes. Records in which such bytes are many are walked through
    first; a record whose values would exceed the budget is ``Undecodable``. A record of a recorder never is: one
    argument has 8,000 values at most (``record.snapshot``).
    """

    def __init__(self) -> None:
        self._bytes = self._values = 0

    def decode(self, payload: bytes | memoryview) -> Record:
        """Decode a payload within the budget; see ``decode``."""
        size = len(payload)
        self._bytes += size
        dense = size - len(bytes(payload).translate(None, _DENSE))
        if dense > size // 8:
            self._values += _values(payload, VALUES + self._bytes // BYTES - self._values)
        return decode(payload)


def _values(payload: bytes | memoryview, most: int) -> int:
    """Count the values in ``payload``, or in the complete part. Raises ``Undecodable`` above ``most`` values."""
    at, left, found = 0, 1, 0
    while left and at < len(payload):
        first = payload[at]
        at, left, found = at + 1, left - 1, found + 1
        if found > most:
            raise Undecodable("too many values")
        if 0x80 <= first < 0xA0:
            left += (first & 15) << (first < 0x90)
        elif 0xA0 <= first < 0xC0:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _COUNTED:
            wide, more = _COUNTED[first]
            at += wide + more + int.from_bytes(payload[at : at + wide], "big")
        elif 0xDC <= first < 0xE0:
            wide = 4 if first & 1 else 2
            left += int.from_bytes(payload[at : at + wide], "big") << (first >= 0xDE)
            at += wide
    return found


class Located(msgspec.Struct, frozen=True, gc=False):
    """Holds a record and the offset of the record's frame in the segment."""

    offset: int
    record: Record
    size: int = 0
    """Bytes of the record."""


@dataclass(frozen=True)
class SegmentFile:
    """Describes a segment as the directory listing shows the file."""

    name: str
    size: int
    changed_ns: int

    @property
    def process(self) -> str:
        """Return the series of segments that the segment belongs to: one process, ``HOST-PID-RAND``."""
        return self.name.removesuffix(layout.SEGMENT_SUFFIX).rsplit("-", 1)[0]

    @property
    def sequence(self) -> int:
        """Return the number in the series; -1 if the name has no number."""
        last = self.name.removesuffix(layout.SEGMENT_SUFFIX).rsplit("-", 1)[-1]
        return int(last) if last.isdecimal() and len(last) < 10 else -1


def segments(run_folder: str | Path) -> list[SegmentFile]:
    """List the segment files of a run, by name; only regular files."""
    segment_files = []
    spool = layout.spool_of(str(run_folder))
    try:
        entries = [] if os.path.islink(spool) else list(os.scandir(spool))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for entry in entries:
        if not entry.name.endswith(layout.SEGMENT_SUFFIX):
            continue
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if files.is_ours(info):
            segment_files.append(SegmentFile(entry.name, info.st_size, info.st_mtime_ns))
    return sorted(segment_files, key=lambda file: (file.process, file.sequence))


def unreadable(run_folder: str | Path) -> str | None:
    """Find a segment, or the spool folder, that this user may not read; None if everything is readable."""
    spool = layout.spool_of(str(run_folder))
    if _closed(spool, os.R_OK | os.X_OK):
        return spool
    paths = (os.path.join(spool, file.name) for file in segments(run_folder))
    return next((path for path in paths if _closed(path, os.R_OK)), None)


def _closed(path: str, mode: int) -> bool:
    """Tell whether ``path`` exists and forbids ``mode``: the shipper may remove the file between two system calls."""
    return not os.access(path, mode) and os.path.exists(path)


@contextmanager
def opened(run_folder: str | Path, name: str) -> Iterator[int]:
    """Open the segment ``name``; yield the descriptor.

    Raises ``FileNotFoundError`` if the segment is gone or not a regular file (any more), another ``OSError`` if the
    segment cannot be read now.
    """
    try:
        fd = files.reading(run_folder, layout.SPOOL, name)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL):
            raise FileNotFoundError(f"{name} {error.strerror}") from error
        raise
    try:
        yield fd
    finally:
        os.close(fd)


def writer_alive(run_folder: str | Path, name: str) -> bool:
    """Tell whether the process that writes segment ``name`` lives: the writer holds the file's lock until death.

    Call the function only for segments that have a header: the writer takes the lock just before writing the header.
    """
    try:
        with opened(run_folder, name) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except OSError:
        return False


def size_of(run_folder: str | Path, name: str) -> int:
    """Return the bytes in segment ``name`` now; -1 if the segment is gone."""
    try:
        return os.lstat(os.path.join(layout.spool_of(str(run_folder)), name)).st_size
    except OSError:
        return -1


class SegmentReader:
    """Follows a segment from ``offset``; see ``read``."""

    def __init__(self, run_folder: str | Path, name: str, offset: int = 0, header: Header | None = None) -> None:
        self.run_folder = run_folder
        self.name = name
        self.offset = offset
        """Offset before which every record was returned."""
        self.header = header
        self.sealed: str | None = None
        """Reason of the seal, once the seal was read."""
        self.incomplete: Torn | None = None
        """Reason why the last ``read`` stopped before the end of the file: still being written, or torn."""
        self.unusable: str | None = None
        """Reason why this file is not our segment; the reader reads no further."""
        self.tried = -1
        """Size of the file at the last ``read``."""
        self.skipped: Counter[str] = Counter()
        """Counts the records passed over since the reader was made, by reason."""

    @property
    def finished(self) -> bool:
        """Tell whether the segment has nothing more to read."""
        return self.unusable is not None or self.sealed is not None

    def read(self, limit: int = 16 << 20) -> list[Located]:
        """Return the complete records since the last call, at most about ``limit`` bytes. Raises ``OSError``.

        A writer cuts a half-written batch off again (full disk). If that happened behind the reader's back, the reader
        starts again from the beginning: records may come twice, and no record is missed.
        """
        if self.finished:
            return []
        self.incomplete = None
        with opened(self.run_folder, self.name) as fd:
            size = self.tried = os.fstat(fd).st_size
            if size < self.offset:
                self.offset = 0
            try:
                return self._records(fd, limit)
            except Torn as torn:
                if torn.damaged and not _is_boundary(fd, torn.offset):
                    self.offset = 0
                else:
                    self.incomplete = torn
                return []

    def _records(self, fd: int, limit: int) -> list[Located]:
        records: list[Located] = []
        budget = Budget()
        try:
            for frame in read_frames(fd, self.offset, limit):
                offset, payload = frame.offset, frame.payload
                self.offset = frame.end
                size = len(payload)
                try:
                    record = budget.decode(payload)
                except Undecodable as why:
                    self.skipped[str(why)] += 1
                    if self.header is None:
                        self.unusable = f"its first record is {why}"
                        return []
                    continue
                if self.header is None:
                    if not isinstance(record, Header) or record.format != FORMAT:
                        self.unusable = f"it does not begin with a header of format {FORMAT}"
                        return []
                    self.header = record
                records.append(Located(offset, record, size))
                if isinstance(record, Seal):
                    self.sealed = record.reason
                    break
        except Torn as torn:
            if not records:
                raise
            self.incomplete = torn
        return records


def _is_boundary(fd: int, offset: int) -> bool:
    """Tell whether a frame begins or the readable part of the file ends at ``offset``."""
    end = len(MAGIC)
    try:
        for frame in read_frames(fd, 0, max(1, offset)):
            end = frame.end
            if end >= offset:
                break
    except Torn as torn:
        end = torn.offset
    return offset in (0, end)


def records_at(fd: int, offsets: Sequence[int], budget: Budget) -> Iterator[Located]:
    """Yield the records whose frames begin at ``offsets`` (ascending). Records that are damaged, missing or beyond
    ``budget`` are left out.

    Records that lie close together are read in a single call.
    """
    chunk, base, read = memoryview(b""), 0, 0
    for number, offset in enumerate(offsets):
        begin = offset - base + PREFIX_SIZE
        if read < begin:
            chunk, base, begin = memoryview(os.pread(fd, _extent(offsets, number), offset)), offset, PREFIX_SIZE
            read = len(chunk)
            if read < begin:
                continue
        length, checksum = PREFIX.unpack_from(chunk, begin - PREFIX_SIZE)
        if length > MAX_FRAME:
            continue
        payload = chunk[begin : begin + length]
        if begin + length > read:
            payload = memoryview(os.pread(fd, length, offset + PREFIX_SIZE))
        if len(payload) < length or zlib.crc32(payload) != checksum:
            continue
        try:
            yield Located(offset, budget.decode(payload), length)
        except Undecodable:
            continue


_GAP = 16 << 10
"""Bytes of other traces between two records that are rather read than jumped over."""
_LAST = 8 << 10
"""Bytes read for a record of unknown size; most records are shorter."""
_EXTENT = 1 << 20
"""Limits the bytes of a single read, about."""


def _extent(offsets: Sequence[int], number: int) -> int:
    """Return how many bytes to read from ``offsets[number]``."""
    first = last = offsets[number]
    for at in range(number + 1, len(offsets)):
        if not last <= offsets[at] <= min(last + _GAP, first + _EXTENT):
            break
        last = offsets[at]
    return last - first + _LAST
