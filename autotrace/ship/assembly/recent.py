"""Keep data in memory between two uses: records of calls from reading to assembly, and assembled traces from completion
to delivery.

Each record is read and decoded once. Data beyond the room is read from its segment again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autotrace.spool.reader import Located
from autotrace.trajectory.model import Span, Trajectory

ROOM = 64 << 20
"""Approximate bytes of memory for kept records."""
OVERHEAD_BYTES, TIMES = 600, 2
"""Memory of a record: fixed bytes, and a multiple of its size."""

BySegment = dict[int, list[Located]]
"""Segment -> records of the segment, ascending."""


class KeptRecords:
    """Keep records of the traces that began first, as far as there is room."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._traces: dict[str, BySegment] = {}
        self._dropped: set[str] = set()
        """Traces whose records are not kept until the next ``take``."""
        self._bytes = 0

    def of(self, trace_id: str, segment: int) -> list[Located] | None:
        """Return the list for records of a trace in ``segment``, to be filled before ``added`` is called; None: keep
        nothing."""
        if trace_id in self._dropped:
            return None
        return self._traces.setdefault(trace_id, {}).setdefault(segment, [])

    def added(self, records: int, size: int) -> None:
        """Count appended records and their bytes. Make room: the trace that began last goes first."""
        self._bytes += records * OVERHEAD_BYTES + size * TIMES
        while self._bytes > self._room and self._traces:
            trace_id, by_segment = self._traces.popitem()
            self._dropped.add(trace_id)
            self._bytes -= _bytes(by_segment)

    def drop(self, trace_id: str) -> None:
        """Drop the records of a trace."""
        self._dropped.discard(trace_id)
        self._bytes -= _bytes(self._traces.pop(trace_id, {}))

    def take(self, trace_id: str, offsets_of: Mapping[int, Sequence[int]]) -> BySegment | None:
        """Return the records at the given offsets (segment -> ascending offsets), once, if the offsets are all that was
        read."""
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
"""Bytes that a delivering process keeps, so that each trajectory is read from the spool once."""
TOKEN_BYTES, SPAN_BYTES, RECORD_BYTES = 16, 4_000, 2
"""Approximate memory of a token id, of a call, and of a byte of arguments and results (many small numbers: more)."""
SOON = 5.0
"""Seconds without a delivery after which kept traces count as unwanted."""


class Assembled(NamedTuple):
    """Hold a trace assembled from its records, without facts that may change."""

    spans: list[Span]
    notes: list[str]
    processes: list[str]
    digests: list[str]
    """Digests of the responses."""
    lasting: bool
    """Whether every call has ended and all records could be read: the same records then give the same trace."""
    tokens: int = 0
    """Tokens of new prompts, and twice the tokens of the responses."""
    bytes: int = 0
    """Bytes of the records."""
    before: Trajectory | None = None
    """Trajectory from the tables, if its records are gone."""

    @property
    def size(self) -> int:
        """Return the approximate bytes in memory."""
        return TOKEN_BYTES * self.tokens + SPAN_BYTES * len(self.spans) + RECORD_BYTES * self.bytes


class Recent:
    """Hold about ``limit`` bytes at most; 0: nothing is kept. ``take`` hands a trace over and does not share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[str, Assembled] = {}
        self._bytes = 0
        self._asked_at = time.monotonic()
        """Time of the last ``take``."""

    @property
    def has_room(self) -> bool:
        """Return whether more traces may be assembled now; False: kept traces will soon be taken."""
        return self._bytes < self._limit or not self._limit or self._is_left_alone

    @property
    def _is_left_alone(self) -> bool:
        return time.monotonic() - self._asked_at > SOON

    def put(self, trace_id: str, assembled: Assembled) -> None:
        """Keep ``assembled``, if there is room, until taken, or dropped because more records were read."""
        self.drop(trace_id)
        if self._bytes >= self._limit and self._is_left_alone:  # nobody takes the kept traces
            self._kept.clear()
            self._bytes = 0
        if self._bytes < self._limit and assembled.lasting:
            self._kept[trace_id] = assembled
            self._bytes += assembled.size

    def take(self, trace_id: str) -> Assembled | None:
        """Return a kept trace, once."""
        self._asked_at = time.monotonic()
        return self.drop(trace_id)

    def drop(self, trace_id: str) -> Assembled | None:
        """Drop a trace that nobody will take."""
        assembled = self._kept.pop(trace_id, None)
        if assembled is not None:
            self._bytes -= assembled.size
        return assembled
