"""What is kept in memory between two uses: records of calls from when the indexer reads them to when their trace is
assembled, and assembled traces from completion to delivery.

Each record is read and decoded once. What there is no room for is read from its segment again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autotrace.spool.reader import Located
from autotrace.trajectory.model import Span, Trajectory

ROOM = 64 << 20
"""Bytes of memory that they may take, about."""
OVERHEAD_BYTES, TIMES = 600, 2
"""What a record takes in memory: so much, and its bytes so many times."""

BySegment = dict[int, list[Located]]
"""Segment -> records in it, ascending."""


class KeptRecords:
    """Of the traces that were begun first, as many as there is room for."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._traces: dict[str, BySegment] = {}
        self._dropped: set[str] = set()
        """Of these nothing is kept until they were taken."""
        self._bytes = 0

    def of(self, trace_id: str, segment: int) -> list[Located] | None:
        """Where to append what is read of a trace in ``segment``, before ``added`` is called; None: nowhere."""
        if trace_id in self._dropped:
            return None
        return self._traces.setdefault(trace_id, {}).setdefault(segment, [])

    def added(self, records: int, size: int) -> None:
        """So many were appended, which have so many bytes. Makes room: what was begun last goes first."""
        self._bytes += records * OVERHEAD_BYTES + size * TIMES
        while self._bytes > self._room and self._traces:
            trace_id, by_segment = self._traces.popitem()
            self._dropped.add(trace_id)
            self._bytes -= _bytes(by_segment)

    def drop(self, trace_id: str) -> None:
        """It is not asked for."""
        self._dropped.discard(trace_id)
        self._bytes -= _bytes(self._traces.pop(trace_id, {}))

    def take(self, trace_id: str, offsets_of: Mapping[int, Sequence[int]]) -> BySegment | None:
        """The records at these offsets (segment -> ascending offsets), once, if these are all that was read."""
        by_segment = self._traces.get(trace_id, {})
        self.drop(trace_id)
        offsets = {segment: [located.offset for located in records] for segment, records in by_segment.items()}
        return by_segment if by_segment and offsets == offsets_of else None


def _bytes(by_segment: BySegment) -> int:
    return sum(
        len(records) * OVERHEAD_BYTES + TIMES * sum(located.size for located in records)
        for records in by_segment.values()
    )


AHEAD = 48 << 20
"""Bytes that a process which delivers keeps, so that it reads each trajectory from the spool once."""
TOKEN_BYTES, SPAN_BYTES, RECORD_BYTES = 16, 4_000, 2
"""What a token id, a call, and a byte of its arguments and results take in memory, about (many small numbers: more)."""
SOON = 5.0
"""Seconds without a delivery after which nobody counts as coming for what is kept."""


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


class Recent:
    """Holds about ``limit`` bytes at most; 0: nothing is kept. What is taken is handed over, not shared."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[str, Assembled] = {}
        self._bytes = 0
        self._asked_at = time.monotonic()
        """When somebody came for a trace."""

    @property
    def has_room(self) -> bool:
        """Whether more may be assembled now; False: the traces here will soon be taken."""
        return self._bytes < self._limit or not self._limit or self._is_left_alone

    @property
    def _is_left_alone(self) -> bool:
        return time.monotonic() - self._asked_at > SOON

    def put(self, trace_id: str, assembled: Assembled) -> None:
        """Keep ``assembled``, if there is room, until it is taken, or dropped because more of it was read."""
        self.drop(trace_id)
        if self._bytes >= self._limit and self._is_left_alone:  # nobody comes for what is here
            self._kept.clear()
            self._bytes = 0
        if self._bytes < self._limit and assembled.lasting:
            self._kept[trace_id] = assembled
            self._bytes += assembled.size

    def take(self, trace_id: str) -> Assembled | None:
        """Return what was put, once."""
        self._asked_at = time.monotonic()
        return self.drop(trace_id)

    def drop(self, trace_id: str) -> Assembled | None:
        """Forget a trace that nobody will come for."""
        assembled = self._kept.pop(trace_id, None)
        if assembled is not None:
            self._bytes -= assembled.size
        return assembled
