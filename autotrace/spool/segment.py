"""Frame a segment file: append frames, read frames, find where damage begins. See ``records`` for the content."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

import msgspec

from autotrace.spool.records import MAGIC, MAX_FRAME

PREFIX = struct.Struct("<II")
"""Length and checksum of the payload that follows."""
PREFIX_SIZE = PREFIX.size
_CHUNK, _LEAST_CHUNK = 1 << 20, 16 << 10
"""Bytes of a single read."""


def frame(payload: bytes) -> bytes:
    """Frame ``payload`` for a segment."""
    return PREFIX.pack(len(payload), zlib.crc32(payload)) + payload


class Frame(msgspec.Struct, gc=False):
    """Holds a complete frame: ``offset`` of the prefix, ``end`` = offset of the next frame."""

    offset: int
    end: int
    payload: bytes | memoryview


class Torn(Exception):
    """Reports that no complete frame begins at ``offset``: still being written, or cut by a crash, or damaged."""

    def __init__(self, offset: int, damaged: bool) -> None:
        super().__init__(f"no complete frame at offset {offset}")
        self.offset = offset
        self.damaged = damaged
        """True: a checksum or length is wrong; False: the file simply ends too early."""


def read_frames(fd: int, offset: int = 0, limit: int = 1 << 62) -> Iterator[Frame]:
    """Yield complete frames from ``offset`` (0: checks the magic first) until the end of the file.

    Stops silently at a clean end; raises ``Torn`` otherwise. At most ``limit`` bytes are read, frame-aligned.
    """
    if offset == 0:
        head = os.pread(fd, len(MAGIC), 0)
        if head != MAGIC:
            if not head:
                return
            raise Torn(0, damaged=not MAGIC.startswith(head))
        offset = len(MAGIC)
    stop = offset + limit

    def ahead() -> int:
        return min(_CHUNK, max(_LEAST_CHUNK, stop - offset))

    chunk, base = memoryview(b""), offset
    while offset < stop:
        at = offset - base
        if len(chunk) - at < PREFIX_SIZE:
            chunk, base, at = memoryview(os.pread(fd, ahead(), offset)), offset, 0
            if not chunk:
                return
            if len(chunk) < PREFIX_SIZE:
                raise Torn(offset, damaged=False)
        length, checksum = PREFIX.unpack_from(chunk, at)
        begin = offset + PREFIX_SIZE
        if not 0 < length <= MAX_FRAME:  # none is written: a hole of the file, or of a disk that lost power
            raise Torn(offset, damaged=True)
        payload = chunk[begin - base : begin - base + length]
        if len(payload) < length:
            chunk, base = memoryview(os.pread(fd, max(length, ahead()), begin)), begin
            payload = chunk[:length]
            if len(payload) < length:
                raise Torn(offset, damaged=False)
        if zlib.crc32(payload) != checksum:
            raise Torn(offset, damaged=True)
        yield Frame(offset, begin + length, payload)
        offset = begin + length
