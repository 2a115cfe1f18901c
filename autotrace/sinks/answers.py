"""Bound the answers of servers: an answer of a backend is short, and a server may be broken or somebody else's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import httpx

MOST, MOST_ENCODED, SECONDS = 16 << 20, 256 << 10, 120.0
"""Limits the bytes of an answer, the bytes of a compressed answer, and the seconds until the end of an answer."""


class _BoundedStream(httpx.SyncByteStream):
    """Pass a body on, up to a limit of bytes and a time."""

    def __init__(self, stream: httpx.SyncByteStream, most: int) -> None:
        self._stream, self._most, self._until = stream, most, time.monotonic() + SECONDS

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > self._most:
                raise httpx.ReadError(f"the answer has more than {self._most:,} bytes")
            if time.monotonic() > self._until:
                raise httpx.ReadTimeout(f"the answer took more than {SECONDS:.0f} s")
            yield part

    def close(self) -> None:
        """Close the body."""
        self._stream.close()


def _bound(response: httpx.Response) -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _BoundedStream(response.stream, MOST if encoding in ("", "identity") else MOST_ENCODED)


BOUNDED: Mapping[str, list[Callable[..., None]]] = {"response": [_bound]}
"""Event hooks of a client whose answers are bounded: ``httpx.Client(event_hooks=BOUNDED)``."""
