"""The segment files of this process: append-only, one ``os.write`` a batch, held by a file lock for life.

``os.write`` rather than mmap (on a full disk mmap is SIGBUS); the page cache survives SIGKILL of the process. The lock
says that the writer lives: pids mean nothing across containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from autotrace import __version__
from autotrace.run import layout, process
from autotrace.spool.records import FORMAT, MAGIC, Header, Record, Seal
from autotrace.spool.segment import frame

MAX_SEGMENT = 64 * 1024 * 1024
"""Bytes after which a new segment begins."""

_encode: Callable[[Record], bytes] = msgspec.msgpack.Encoder().encode


class SpoolWriter:
    """Segments of one process. No file exists before the first ``write``. Not thread-safe: the flusher alone calls
    it."""

    def __init__(self, run_folder: str, run_id: str, plan_digest: str) -> None:
        self._folder = layout.spool_of(run_folder)
        self._run_id = run_id
        self._plan_digest = plan_digest
        self._stem = f"{_file_name(socket.gethostname())}-{os.getpid()}-{os.urandom(4).hex()}"
        self._sequence = 0
        self._fd = -1
        self._size = 0

    @property
    def opened(self) -> bool:
        """A segment is open: names defined in it may be referred to."""
        return self._fd >= 0

    def open(self) -> None:
        """Begin a segment. Raises ``OSError``."""
        os.makedirs(self._folder, mode=layout.DIR_MODE, exist_ok=True)
        name = f"{self._stem}-{self._sequence}{layout.SEGMENT_SUFFIX}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(os.path.join(self._folder, name), flags, layout.FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = Header(
                FORMAT,
                self._run_id,
                socket.gethostname(),
                os.getpid(),
                process.boot_id(),
                process.title(),
                self._plan_digest,
                time.time_ns(),
                time.monotonic_ns(),
                self._sequence,
                __version__,
            )
            head = MAGIC + frame(_encode(header))
            if os.write(fd, head) != len(head):
                raise OSError("short write of a segment header")
        except OSError:
            os.close(fd)
            raise
        self._sequence += 1
        self._fd, self._size = fd, len(head)

    def write(self, frames: Sequence[bytes]) -> int:
        """Append ``frames`` with one system call; how many of them stand in the file now, each of them whole: on a disk
        that fills up not all. Raises ``OSError`` when none does."""
        data = b"".join(frames)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError:
            whole, count = _fitting(frames, written)
            self._cut(self._size + whole)
            if not count:
                raise
            self._size += whole
            return count
        self._size += len(data)
        return len(frames)

    def _cut(self, size: int) -> None:
        """Take a half-written frame back; a segment that cannot be cut is given up, the next one begins clean."""
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self.abandon()

    @property
    def size(self) -> int:
        """Bytes in the open segment."""
        return self._size if self._fd >= 0 else 0

    @property
    def full(self) -> bool:
        """The segment reached its size: ``seal`` it and ``open`` the next."""
        return self._size >= MAX_SEGMENT

    def seal(self, reason: str) -> None:
        """Close the segment on purpose (``exit``, ``rotate``). Never raises."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self.write([frame(_encode(Seal(reason, time.monotonic_ns())))])
        self.abandon()

    def abandon(self) -> None:
        """Close the file without a word: what a forked child does with its parent's segment."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _fitting(frames: Sequence[bytes], written: int) -> tuple[int, int]:
    """Bytes and number of the leading ``frames`` that lie within ``written`` bytes."""
    size = 0
    for count, one in enumerate(frames):
        if size + len(one) > written:
            return size, count
        size += len(one)
    return size, len(frames)


def _file_name(text: str) -> str:
    return "".join(char if char.isalnum() or char in "._" else "_" for char in text)[:64] or "host"
