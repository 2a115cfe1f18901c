"""Read the body of an HTTP answer, or join the body from the bytes as the bytes come. Events of a server
(``text/event-stream``) have JSON as data: chunks of a chat. Any other body is a JSON document.

Chunks end anywhere, in the middle of a line or of a character. Unreadable bytes are passed over.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from autotrace.record import collecting
from autotrace.record.object_fields import layout_of, layouts, members
from autotrace.record.snapshot import FIXED, Limits
from autotrace.record.yielded import NO_KEEPER, Keeper, Yielded

MAX_BYTES = 4 << 20
"""Limit the bytes of an event or document. A longer body is not read on the caller's thread."""
_GZIP_OR_ZLIB = 47
"""Holds the ``wbits`` that let zlib detect gzip or zlib."""


class EventBytes(Yielded):
    """Collects a stream of bytes. ``kind``: the content type; ``encoding``: the content encoding."""

    def __init__(self, role: str, limits: Limits, kind: str, encoding: str) -> None:
        self._role, self._limits = role, limits
        self._events = kind.startswith("text/event-stream")
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB) if encoding in ("gzip", "deflate") else None
        self._readable = self._inflate is not None or encoding in ("", "identity")
        self._plain = self._events and self._readable and self._inflate is None
        self._pieces: list[bytes] = []
        """Holds the pieces of the line or document that has not ended."""
        self._size = 0
        self._data: list[bytes] = []
        """Holds the lines of the event that has not ended."""
        self._answer: Yielded | None = None
        self._chunks = self._count = 0

    def add(self, item: Any) -> Keeper:
        """Take some bytes."""
        self._chunks += 1
        if self._readable and type(item) is bytes:
            if (  # a single event, the usual chunk of a server: half the work
                self._plain
                and item[:5] == b"data:"
                and item.find(b"\n") == len(item) - 2
                and item[-1:] == b"\n"
                and not (self._size or self._data)
            ):
                self._event(item[5:-2])
            else:
                self._take(item)
        return NO_KEEPER

    def _take(self, data: bytes) -> None:
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data, MAX_BYTES)
            except zlib.error:
                self._readable = False
                return
        if not self._events or b"\n" not in data:
            self._keep(data)
            return
        first, *lines, last = data.split(b"\n")
        self._keep(first)
        for line in (self._kept(), *lines):
            self._line(line.rstrip(b"\r"))
        self._keep(last)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _kept(self) -> bytes:
        whole = b"".join(self._pieces) if self._size <= MAX_BYTES else b""
        self._pieces.clear()
        self._size = 0
        return whole

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:])
        elif not line and self._data:
            data, self._data = b"\n".join(self._data), []
            self._event(data)

    def _event(self, data: bytes) -> None:
        event = _decoded(data)
        if event is None:
            return
        self._count += 1
        answer = self._answer
        if answer is None:
            answer = self._answer = collecting.begin(self._role, event, self._limits)
        answer.add(event)
        self.done = answer.done

    def value(self) -> Any:
        """Return the answer in the form without a stream; None where nothing could be read."""
        if not self._events:
            return _decoded(self._kept())
        self._line(self._kept().rstrip(b"\r"))
        self._line(b"")
        self.kept = self._count - self._chunks
        return None if self._answer is None else self._answer.value()


_decode = msgspec.json.Decoder().decode


def _decoded(data: bytes) -> Any:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # also ``[DONE]``
        return None


def answered(result: Any) -> Any:
    """Return ``result``. For an HTTP response whose body was read, or an object around such a response
    (``with_raw_response``, which LangChain and the Agents SDK use), return the decoded JSON of the body."""
    kind = type(result)
    layout = layouts.get(id(kind))
    if layout is None:
        if kind is dict or kind is str or kind is list or id(kind) in FIXED:
            return result
        layout = layout_of(kind)
    if layout.fields is not None:  # responses declare none
        return result
    held = members(result)
    response = dict.get(held, "http_response")
    body = dict.get(held if response is None else members(response), "_content")
    if type(body) is not bytes or not body.startswith((b"{", b"[")) or len(body) > MAX_BYTES:
        return result
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return result
