"""Hold the traces of a run that may still grow in memory, and read calls: find the trace of each call, update the
trace, store the position of the record. Other traces are lines of the state until more records are read. If many traces
are open, the same holds for open traces that only the end of their process can complete (a program that is recorded
whole leaves hundreds of thousands). Calls are the most frequent records by far, so lookups for the latest trace of a
segment are not repeated."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

import msgspec

from autotrace.ship.assembly.loader import Loader
from autotrace.ship.assembly.recent import KeptRecords
from autotrace.ship.index.joins import Joins
from autotrace.ship.index.open_traces import MAX_LATE_CALLS, OpenTrace
from autotrace.ship.index.processes import Processes, Segment
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.spool.reader import Located
from autotrace.spool.records import OF, Close, Open
from autotrace.trajectory.jsonable import text

AWAKE = 10_000
"""Approximate number of open traces in memory."""


class Traces:
    """Hold the traces that are open or have new records."""

    def __init__(self, state: State, loader: Loader, joins: Joins, processes: Processes) -> None:
        self._state = state
        self._loader = loader
        self._joins = joins
        self._processes = processes
        self.open: dict[str, OpenTrace] = {}
        """Open traces by id, without sleeping traces."""
        self._sleepers: dict[str, set[str]] = {}
        """Process -> ids of open traces that only the end of the process can complete, and that are not in memory."""
        self._crowded = AWAKE
        """Number of traces in memory above which traces are put to sleep."""
        self.last_touched = time.monotonic()
        """Time when a record of any trace was last read."""

    @property
    def count(self) -> int:
        """Return the number of open traces."""
        return len(self.open) + sum(map(len, self._sleepers.values()))

    def reopen(self, row: TraceRow) -> OpenTrace:
        """Open a trace whose records were read before: the records show which calls are open. While the records of a
        process cannot be read, the process counts as being in a call."""
        trace = self.open[row.trace_id] = OpenTrace(row, stored=not row.complete)
        trace.is_part = OF in msgspec.json.decode(row.attributes)
        for origin, records in self._loader.records_of(row.trace_id):
            if records is None:
                trace.open[_UNREAD], trace.unread = origin.process, True
                continue
            trace.replay(origin.process, (self._joins.attached(located.record) for located in records), origin.shift)
        return trace

    def growing(self, trace_id: str) -> OpenTrace | None:
        """Return the trace to which a record belongs, created if new; None if the trace has too many late calls."""
        trace = self.open.get(trace_id)
        row = (self._state.row(trace_id) or TraceRow(trace_id)) if trace is None else trace.row
        return None if row.late_spans >= MAX_LATE_CALLS else self.touch(trace_id, row)

    def touch(self, trace_id: str, row: TraceRow | None = None) -> OpenTrace | None:
        """Mark a new record of a trace; None without such a trace. ``row``: the trace's line, if already looked up."""
        trace = self.open.get(trace_id)
        if trace is None:
            row = row or self._state.row(trace_id)
            if row is None:
                return None
            if self._woken(trace_id):
                trace = self.reopen(row)
            else:
                self._loader.recent.drop(trace_id)
                trace = self.open[trace_id] = OpenTrace(row)
                trace.row.complete = False
        trace.touch()
        self.last_touched = trace.touched
        return trace

    def store(self) -> None:
        """Write changed traces to the state."""
        changed = [trace for trace in self.open.values() if trace.dirty]
        self._state.put_rows([trace.row for trace in changed if not trace.stored])
        self._state.put_counts([trace.row for trace in changed if trace.stored])
        for trace in changed:
            trace.dirty, trace.stored = False, True
        self.rest()

    def rest(self) -> None:
        """Put traces to sleep, if many are open, until half of the places are free."""
        if len(self.open) <= self._crowded:
            return
        for trace_id, trace in [*self.open.items()]:
            if len(self.open) <= AWAKE // 2:
                break
            process = trace.waits_for
            if process is not None and not self._processes.has_ended(process):
                del self.open[trace_id]
                self._loader.kept.drop(trace_id)
                self._sleepers.setdefault(process, set()).add(trace_id)
        self._crowded = max(AWAKE, 2 * len(self.open))

    def wake(self, most: int, over: bool) -> None:
        """Wake ``most`` traces whose process has ended; ``over``: of all processes. Retry traces that could not be
        read."""
        for trace in [one for one in self.open.values() if one.unread]:
            self.reopen(trace.row)
        for process in [one for one in self._sleepers if over or self._processes.has_ended(one)]:
            ids = self._sleepers[process]
            while ids and most > 0:
                most -= 1
                if (row := self._state.row(ids.pop())) is not None:
                    self.reopen(row)
            if not ids:
                del self._sleepers[process]

    def _woken(self, trace_id: str) -> bool:
        """Wake a trace; return whether the trace slept."""
        holding = [ids for ids in self._sleepers.values() if trace_id in ids]
        for ids in holding:
            ids.remove(trace_id)
        return bool(holding)


_UNREAD = -1
"""Number in place of calls in records that cannot be read."""
Offsets = dict[tuple[str, int], "array[int]"]
"""(Trace id, segment) -> offsets of the records read in this round."""
_Latest = tuple[OpenTrace, "array[int]", list[Located] | None]
Begun = Callable[[OpenTrace, str, str, Open, int], None]
"""Receive a trace whose root has begun: the root's name, role and record, and its wall-clock time."""


class CallIndexer:
    """Read the calls of a run. ``read`` takes a record; ``taken`` returns the offsets of the round."""

    def __init__(self, traces: Traces, joins: Joins, processes: Processes, kept: KeptRecords, begun: Begun) -> None:
        self._traces = traces
        self._joins = joins
        self._processes = processes
        self._kept = kept
        self._begun = begun
        self.offsets: Offsets = {}
        """Offsets of this round."""
        self._segment = -1
        self._latest: dict[bytes, _Latest] = {}
        """Id of a trace in ``_segment`` -> the trace, its offsets, its kept records."""
        self._touched: dict[str, OpenTrace] = {}
        """Traces of this round."""
        self._added = self._bytes = 0

    def taken(self) -> Offsets:
        """Return ``offsets`` and begin the next round."""
        offsets, self.offsets = self.offsets, {}
        self.forget()
        for trace in self._touched.values():  # the latest records of these traces were read only now
            self._traces.last_touched = trace.touch()
        self._touched.clear()
        self._kept.added(self._added, self._bytes)
        self._added = self._bytes = 0
        return offsets

    def forget(self) -> None:
        """Drop lookups after traces, or the traces of their records, have changed."""
        self._latest.clear()

    def read(self, segment: Segment, located: Located, record: Open | Close, at: int) -> None:
        """Take the begin or end of a call, at wall-clock time ``at``."""
        if segment.id != self._segment:
            self._segment = segment.id
            self.forget()
        latest = self._latest.get(record.trace)
        begins = isinstance(record, Open) and not record.parent
        if latest is None or begins or latest[0].row.late_spans >= MAX_LATE_CALLS:
            trace_id, record = self._attached(segment, record)
            latest = self._found(segment, trace_id, record)
            if latest is None:
                return
        trace, offsets, kept = latest
        offsets.append(located.offset)
        if kept is not None:
            kept.append(located)
            self._added += 1
            self._bytes += located.size
        if isinstance(record, Close):
            trace.closed(record.span, at)
            return
        name, role = segment.target(record.target)
        trace.opened(record.span, record.parent, segment.process, role, at)
        if record.parent == 0 and not trace.row.root_read:
            self._begun(trace, text(name) or "?", text(role), record, at)

    def _attached(self, segment: Segment, record: Open | Close) -> tuple[str, Open | Close]:
        """Return the trace to which a record belongs: another trace if its own was joined to the other."""
        trace_id = record.trace.hex()
        join = self._joins.of(trace_id)
        if join is None and isinstance(record, Open) and record.parent == 0:
            join = self._joins.root(trace_id, record, segment.target(record.target)[1])
        return (trace_id, record) if join is None else (join.trace_id, self._joins.attached(record))

    def _found(self, segment: Segment, trace_id: str, record: Open | Close) -> _Latest | None:
        """Return the trace ``trace_id``, created if new; None if the record is skipped."""
        if len(record.trace) != 16:
            self._processes.skip(segment.process, "invalid record")
            return None
        trace = self._traces.growing(trace_id)
        if trace is None:
            if isinstance(record, Open):
                self._processes.skip(segment.process, f"late calls beyond the first {MAX_LATE_CALLS} of a trajectory")
            return None
        offsets = self.offsets.setdefault((trace_id, segment.id), array("q"))
        latest = trace, offsets, self._kept.of(trace_id, segment.id)
        self._touched[trace_id] = trace
        if record.trace.hex() == trace_id:
            self._latest[record.trace] = latest
        else:  # joined just now
            self._latest.pop(record.trace, None)
        return latest
