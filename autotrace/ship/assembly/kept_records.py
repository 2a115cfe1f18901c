"""Records of calls from when the indexer reads them to when their trace is assembled, so that each is read and decoded
once. What there is no room for is read from its segment again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotrace.spool.reader import Located

ROOM = 64 << 20
"""Bytes of memory that they may take, about."""
RECORD_BYTES, TIMES = 600, 2
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
        self._bytes += records * RECORD_BYTES + size * TIMES
        while self._bytes > self._room and self._traces:
            trace_id, by_segment = self._traces.popitem()
            self._dropped.add(trace_id)
            self._bytes -= _bytes(by_segment)

    def drop_all(self) -> None:
        """Nothing that is here will be asked for."""
        self._traces.clear()
        self._dropped.clear()
        self._bytes = 0

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
        len(records) * RECORD_BYTES + TIMES * sum(located.size for located in records)
        for records in by_segment.values()
    )
