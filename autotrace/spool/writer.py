"""Write the segment files of this process: append-only, one ``os.write`` per batch, locked for life.

The module also limits the size of the run's spool. ``os.write`` is used rather than mmap (on a full disk mmap is
SIGBUS); the page cache survives SIGKILL of the process. The lock shows that the writer lives: pids mean nothing across
containers. The descriptor lives in the host's process. The host may close the descriptor and get the number for a file
of the host, so the writer checks the descriptor before each use (``run.files.Descriptor``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Callable, Sequence

import msgspec

from autotrace import __version__
from autotrace.config.originals import time, wall_ns
from autotrace.run import files, gc_pause, layout, process
from autotrace.spool.records import FORMAT, MAGIC, Header, Record, Seal
from autotrace.spool.segment import frame

LOOK_EVERY = 1.0
"""Seconds between two looks at the folder (a few hundred files: about a millisecond)."""
REMOVE_ABOVE, REMOVE_TO = 0.7, 0.5
"""Shares of the limit: above the first share, delivered segments are removed until the second share is reached."""
PRESSING = 0.5
"""Share of the limit above which segments stay small, so that the shipper can remove segments separately."""
PARTS = 64
LEAST = 64 * 1024
"""Bytes of a segment that is not worth ending."""


class SpoolLimit:
    """Watches the size of a run's spool. The shipper makes room by removing delivered segments (``ship.retention``)."""

    def __init__(self, run_folder: str, limit: int) -> None:
        self._folder = layout.spool_of(run_folder)
        self._limit = limit
        self._looked = -LOOK_EVERY
        self._total = 0

    def look(self, wrote: int = 0) -> None:
        """Add the sizes up, once a second at most; in between, add the bytes that this process ``wrote``. Never
        raises."""
        if not self._limit:
            return
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            self._total += wrote
        else:
            self._looked, self._total = now, _size(self._folder)

    def reached(self, coming: int) -> bool:
        """Tell whether the spool is full, as of the last ``look`` and with ``coming`` bytes that wait to be written."""
        return bool(self._limit) and self._total + coming >= self._limit

    def ends(self, size: int) -> bool:
        """Tell whether a segment of ``size`` bytes should end, so that the shipper can remove the segment."""
        return bool(self._limit) and self._total >= PRESSING * self._limit and size >= max(LEAST, self._limit // PARTS)


def _size(folder: str) -> int:
    """Count the bytes in the segments of ``folder``; 0 if the folder is missing."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(layout.SEGMENT_SUFFIX):
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:  # a segment vanished while we looked: the shipper is making room
        pass
    return total


MAX_SEGMENT = 64 * 1024 * 1024
"""Bytes after which a new segment begins."""

_encode: Callable[[Record], bytes] = msgspec.msgpack.Encoder().encode


class SpoolWriter:
    """Writes the segments of one process. No file exists before the first ``open``. Not thread-safe: the flusher alone
    calls the writer."""

    def __init__(self, run_folder: str, run_id: str, plan_digest: str) -> None:
        self._folder = layout.spool_of(run_folder)
        self._run_id = run_id
        self._plan_digest = plan_digest
        self._stem = f"{file_name(os.uname().nodename)}-{os.getpid()}-{os.urandom(4).hex()}"
        self._sequence = 0
        self._file: files.Descriptor | None = None
        self._number_before = 0
        """Descriptor number of the previous segment, taken again: to the host nothing was opened."""
        self._size = 0
        self.error: OSError | None = None
        """Error of the last write that failed."""

    @property
    def opened(self) -> bool:
        """Tell whether a segment is open, so that records may refer to names defined inside. Looks at the
        descriptor."""
        if self._file is None:
            return False
        try:
            self._file.number(self._size)
        except files.Taken:
            self._file = None
        return self._file is not None

    def open(self) -> None:
        """Begin a segment. Raises ``OSError``."""
        files.folder(self._folder)
        fd = files.new(os.path.join(self._folder, f"{self._stem}-{self._sequence}{layout.SEGMENT_SUFFIX}"))
        try:
            fd = self._number_before = _moved(fd, self._number_before)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = Header(
                FORMAT,
                self._run_id,
                os.uname().nodename,
                os.getpid(),
                process.boot_id(),
                process.title(),
                self._plan_digest,
                wall_ns(),
                time.monotonic_ns(),
                self._sequence,
                __version__,
            )
            head = MAGIC + frame(_encode(header))
            if _append(fd, head) != len(head):
                raise OSError("short write of a segment header")
        except OSError:
            os.close(fd)
            raise
        self._sequence += 1
        self._file, self._size = files.Descriptor(fd), len(head)

    def write(self, frames: Sequence[bytes]) -> int:
        """Append ``frames`` with one system call; return how many whole frames the file has now.

        On a disk that fills up, the file may have fewer than all. Raises ``OSError`` if the file has no frame,
        ``files.Taken`` if the segment is gone.
        """
        data = b"".join(frames)
        written = 0
        try:
            while written < len(data):
                written += _append(self._number(self._size + written), data[written:] if written else data)
        except files.Taken:
            self._file = None
            whole, count = _fitting(frames, written)
            if not count:
                raise
            return count
        except OSError as error:
            self.error = error
            whole, count = _fitting(frames, written)
            self._cut(self._size + whole)
            if not count:
                raise
            self._size += whole
            return count
        self._size += len(data)
        return len(frames)

    def _number(self, size: int | None = None) -> int:
        if self._file is None:
            raise files.Taken("no segment is open")
        return self._file.number(size)

    def _cut(self, size: int) -> None:
        """Cut off a half-written frame. Abandon a segment that cannot be cut; the next segment begins clean."""
        try:
            os.ftruncate(self._number(), size)
        except OSError:
            self.abandon()

    @property
    def size(self) -> int:
        """Return the bytes in the open segment."""
        return self._size if self._file is not None else 0

    @property
    def full(self) -> bool:
        """Tell whether the segment reached the maximum size: ``seal`` the segment and ``open`` the next."""
        return self._size >= MAX_SEGMENT

    def seal(self, reason: str) -> None:
        """Close the segment on purpose (``exit``, ``rotate``). Never raises."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self.write([frame(_encode(Seal(reason, time.monotonic_ns())))])
        self.abandon()

    def abandon(self) -> None:
        """Close the file without a final record, as a forked child does with the parent's segment."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _moved(fd: int, number: int) -> int:
    """Move ``fd`` to ``number`` if the number is free and not smaller: a host that counts descriptors sees no
    change."""
    try:
        other = fd if fd >= number else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
    except OSError:  # the limit of descriptors
        return fd
    if other != fd:
        os.close(fd if other == number else other)
    return number if other == number else fd


def _append(fd: int, data: bytes) -> int:
    """Write as ``os.write`` does, but raise ``OSError`` if the file may not grow (``ulimit -f``); never send a signal.

    Python ignores ``SIGXFSZ``, but a host may have restored the deadly default, or set a handler.
    """
    if signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN:
        written: int = gc_pause.released(os.write, fd, data)
        return written
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXFSZ})
    try:
        return os.write(fd, data)
    except OSError as error:
        if error.errno == errno.EFBIG and signal.SIGXFSZ in signal.sigpending() - before:
            signal.sigwait({signal.SIGXFSZ})  # the signal goes to the thread that wrote, so the signal is pending
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fitting(frames: Sequence[bytes], written: int) -> tuple[int, int]:
    """Count the leading ``frames`` that lie within ``written`` bytes; return (bytes, number)."""
    size = 0
    for count, one in enumerate(frames):
        if size + len(one) > written:
            return size, count
        size += len(one)
    return size, len(frames)


def file_name(text: str) -> str:
    """Convert a host's name into the form that begins the names of segments."""
    return "".join(char if char.isalnum() or char in "._" else "_" for char in text)[:64] or "host"
