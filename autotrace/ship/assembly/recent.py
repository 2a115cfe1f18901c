"""Assembled traces between two uses: completion looks at a trace, delivery follows a moment later."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from autotrace.trajectory.model import Span, Trajectory

AHEAD = 48 << 20
"""Bytes that a process which delivers keeps, so that it reads each trajectory from the spool once."""
TOKEN_BYTES, SPAN_BYTES, RECORD_BYTES = 16, 4_000, 2
"""What a token id, a call, and a byte of its arguments and results take in memory, about (many small numbers: more)."""
SOON = 5.0
"""Seconds in which delivery follows; what is older makes room."""


class Assembled(NamedTuple):
    """A trace made of its records, before anything is said about it that may change."""

    spans: list[Span]
    notes: list[str]
    processes: list[str]
    digests: list[str]
    """Of its responses."""
    lasting: bool
    """Every call of it has ended and all records could be read: the same records make the same."""
    tokens: int = 0
    """Of new prompts, and twice those of the responses."""
    bytes: int = 0
    """Of its records."""
    before: Trajectory | None = None
    """As the tables have it, if its records are gone."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return TOKEN_BYTES * self.tokens + SPAN_BYTES * len(self.spans) + RECORD_BYTES * self.bytes


class _Entry(NamedTuple):
    mark: Any
    assembled: Assembled
    size: int
    put_at: float


class Recent:
    """Holds ``limit`` bytes at most, about; 0: nothing is kept. What is taken is handed over, not shared."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0
        self._usual = 1 << 20
        """Bytes of one of them, as the latest ones were."""
        self._asked_at = time.monotonic()
        """When somebody came for one."""

    def room(self) -> int | None:
        """How many more may be kept, about; None where none are, or nobody comes for them. While it is 0, what is here
        will soon be taken."""
        if not self._limit:
            return None
        if self._limit - self._bytes < self._usual:
            self._make_room()
        if not self._entries:
            return max(1, self._limit // self._usual)
        room = max(0, self._limit - self._bytes) // self._usual
        return None if not room and time.monotonic() - self._asked_at > SOON else room

    def put(self, trace_id: str, mark: Any, assembled: Assembled) -> None:
        """Keep it, if there is room. ``mark``: what it was made of."""
        self.drop(trace_id)
        if not self._limit or not assembled.lasting:
            return
        size = assembled.size
        self._usual = max(SPAN_BYTES, (3 * self._usual + size) // 4)
        if self._bytes >= self._limit:
            self._make_room()
        if self._bytes < self._limit:
            self._entries[trace_id] = _Entry(mark, assembled, size, time.monotonic())
            self._bytes += size

    def take(self, trace_id: str, mark: Any) -> Assembled | None:
        """What was made of ``mark``, once."""
        self._asked_at = time.monotonic()
        entry = self.drop(trace_id)
        return None if entry is None or entry.mark != mark else entry.assembled

    def drop(self, trace_id: str) -> _Entry | None:
        """Nobody will come for it."""
        entry = self._entries.pop(trace_id, None)
        if entry is not None:
            self._bytes -= entry.size
        return entry

    def drop_all(self) -> None:
        """Nobody will come for any of them."""
        self._entries.clear()
        self._bytes = 0

    def _make_room(self) -> None:
        """Drop what nobody came for."""
        before = time.monotonic() - SOON
        for trace_id, entry in list(self._entries.items()):
            if entry.put_at > before:
                break
            self.drop(trace_id)
