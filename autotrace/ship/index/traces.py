"""The traces of a run that may still grow, in memory; the others are lines of the state until more of them is read."""

from __future__ import annotations

import time

import msgspec

from autotrace.ship.assembly.loader import anchor
from autotrace.ship.index.joins import Joins
from autotrace.ship.index.open_traces import MAX_LATE_CALLS, OpenTrace
from autotrace.ship.index.segments import Segments
from autotrace.ship.store.row import Row
from autotrace.ship.store.state import State
from autotrace.spool.records import OF, Close, Open


class Traces:
    """Those that are open, or of which something new was read."""

    def __init__(self, state: State, segments: Segments, joins: Joins) -> None:
        self._state = state
        self._segments = segments
        self._joins = joins
        self.open: dict[str, OpenTrace] = {}
        """By id."""
        self._overfull: dict[str, OpenTrace] = {}
        """Complete ones with too many late calls, as they were when they were completed last."""
        self.last_touched = time.monotonic()
        """When something about one of them was read."""

    def reopen(self, row: Row) -> OpenTrace:
        """A trace of which records were read before; its open calls are derived from them."""
        trace = self.open[row.trace_id] = OpenTrace(row)
        trace.is_part = OF in msgspec.json.decode(row.attributes)
        for segment, records in self._segments.records_of(row.trace_id):
            header = segment.reader.header
            shift = 0 if header is None else anchor(self._state, segment.process, header)
            trace.replay(segment.process, (self._joins.attached(located.record) for located in records), shift)
        return trace

    def too_late(self, trace_id: str, record: Open | Close, at_ns: int) -> bool:
        """The record is of a call that is one late call too many of its trace."""
        trace = self.open.get(trace_id) or self._overfull.get(trace_id)
        if trace is None:
            late_spans = self._state.late_spans(trace_id)
            if late_spans < MAX_LATE_CALLS:
                return False
            row = self._state.row(trace_id)
            assert row is not None  # it has late spans
            self.reopen(row)
            trace = self._overfull[trace_id] = self.open.pop(trace_id)
        return trace.too_late(record, at_ns)

    def touch(self, trace_id: str, create: bool = False) -> OpenTrace | None:
        """Something new was read about a trace; None where there is none."""
        trace = self.open.get(trace_id)
        if trace is None:
            row = self._state.row(trace_id)
            if row is None and not create:
                return None
            overfull = self._overfull.pop(trace_id, None)
            trace = self.open[trace_id] = OpenTrace(row or Row(trace_id))
            if overfull is not None:
                trace.open = overfull.open
            trace.row.complete = False
        trace.touch()
        self.last_touched = trace.touched
        return trace

    def store(self) -> None:
        """Put what has changed into the state."""
        changed = [trace for trace in self.open.values() if trace.dirty]
        self._state.put_rows([trace.row for trace in changed if not trace.stored])
        self._state.put_counts([trace.row for trace in changed if trace.stored])
        for trace in changed:
            trace.dirty, trace.stored = False, True

    def completed(self, trace: OpenTrace) -> None:
        """It has become a line of the state."""
        if trace.row.late_spans >= MAX_LATE_CALLS:
            self._overfull[trace.row.trace_id] = trace
