"""Index the segments of a run: living processes, traces, positions of records, and complete traces."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.loader import Loader, anchor, facts_of
from autotrace.ship.assembly.recent import OVERHEAD_BYTES
from autotrace.ship.index import facts
from autotrace.ship.index.facts import FactBook
from autotrace.ship.index.joins import Joins, wanted
from autotrace.ship.index.open_traces import GRACE, OpenTrace
from autotrace.ship.index.processes import Processes, Segment, Segments
from autotrace.ship.index.summary import add_facts, begin, fill
from autotrace.ship.index.traces import CallIndexer, Traces
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.spool.reader import Located, SegmentFile, segments
from autotrace.spool.records import (
    OF,
    REQUEST,
    Bind,
    Close,
    Counters,
    Define,
    Fact,
    Header,
    Open,
    Report,
    StepFacts,
    TokenFacts,
)
from autotrace.spool.writer import file_name
from autotrace.trajectory.jsonable import jsonable

ROUND_BYTES, LEAST_BYTES = 12 << 20, 4 << 10
"""Maximum bytes that a transaction reads (four times as many take 30 to 50 MB more memory and are no quicker), and the
minimum bytes for each process. Every process gets the same share of its backlog per round, so no trace is complete
before the records of another process are read."""
ONCE_PER_ROUND = 256
"""Maximum traces completed in a transaction."""
_CONFIG_KEYS = ("project_name", "experiment_name")


class Subscriber:
    """Receive the results of the indexer, inside the transaction that stores the results."""

    def completed(self, row: TraceRow) -> None:
        """Receive a trace that is complete in version ``row.version``; ``row`` is stored afterwards."""

    def learned(self, row: TraceRow) -> None:
        """Receive a complete trace whose facts changed; ``row`` is stored afterwards."""

    def bound(self, name: str, value: Mapping[str, Any]) -> None:
        """Receive a report about the run that came after the start."""

    def recorded(self, step: int) -> None:
        """Receive a step of training whose numbers were stored."""


class Indexer:
    """Index a run: ``round`` reads on, ``settle`` decides which traces are complete."""

    def __init__(
        self, state: State, run_folder: str | Path, info: RunInfo, subscribers: Sequence[Subscriber], ahead: int = 0
    ) -> None:
        self._state = state
        self._run_folder = run_folder
        self._subscribers = subscribers
        self.loader = Loader(state, run_folder, info, ahead)
        self._processes = Processes(state, run_folder)
        self._segments = Segments(state, run_folder, info.run_id)
        self._facts = FactBook(state)
        self._joins = Joins(state)
        self._traces = Traces(state, self.loader, self._joins, self._processes)
        self._calls = CallIndexer(self._traces, self._joins, self._processes, self.loader.kept, self._root)
        self._told: set[str] = set()
        """Traces whose facts were read in this round."""
        self.clocks: Mapping[str, int] = {}
        """Boot of another node -> ns from its monotonic clock to this node's wall clock (``ship.cluster.receiver``)."""
        self.behind = False
        """Whether more traces are complete than were completed: complete traces go first."""
        self.unread = False
        """Whether the last round left records for the next round."""
        self._settled_at = time.monotonic()
        self._weight = 4.0
        """Memory that the last round took for each byte read."""
        for (trace_id,) in state.db.execute("SELECT trace_id FROM traces WHERE complete = 0").fetchall():
            if (row := state.row(trace_id)) is not None:  # continue where the last shipper of this run stopped
                self._traces.reopen(row)
                self._joins.wait(trace_id, wanted(msgspec.json.decode(row.attributes), row.role))
                self._traces.rest()

    @property
    def living(self) -> bool:
        """Return whether a process may still write."""
        return bool(self._processes.living())

    def living_here(self) -> set[int]:
        """Return ids of processes of this machine that may still write."""
        names = [name.rsplit("-", 2) for name in self._processes.living()]
        return {int(pid) for host, pid, _ in names if host == file_name(socket.gethostname())}

    @property
    def quiet_for(self) -> float:
        """Return the seconds since a record of a trace was read."""
        return time.monotonic() - self._traces.last_touched

    @property
    def open_traces(self) -> int:
        """Return the number of traces that may still grow."""
        return self._traces.count

    @property
    def has_room(self) -> bool:
        """Return whether more traces may be completed before the completed traces are delivered."""
        return self.loader.recent.has_room

    @property
    def open_groups(self) -> set[str]:
        """Return the groups that have an open trace."""
        return {trace.row.group for trace in self._traces.open.values()}

    def open_steps(self) -> dict[str, int | None]:
        """Return the traces that may still grow, with their steps."""
        return {trace_id: trace.row.step for trace_id, trace in self._traces.open.items()}

    def look_at_locks(self) -> None:
        """Check at the next ``round`` which processes still live, however young the segments are."""
        self._processes.probe_all()

    def has_news(self, file: SegmentFile) -> bool:
        """Return whether ``file`` has unread records."""
        return self._segments.of(file).has_news(file)

    def hurry(self) -> None:
        """End the grace period of every trace, for a reader that needs a result now."""
        self._traces.wake(self._traces.count, over=False)
        for trace in self._traces.open.values():
            trace.touched -= GRACE

    # -- reading -------------------------------------------------------------------------------------------------------

    def round(self) -> bool:
        """Read new records of all segments and store the records in a single transaction; return True for new
        records."""
        read = self.unread = False
        files = segments(self._run_folder)
        with self._state:
            news = [(file, segment) for file in files if (segment := self._segments.of(file)).has_news(file)]
            unread: Counter[str] = Counter()
            for file, segment in news:
                unread[segment.process] += abs(file.size - segment.reader.offset)
            part = min(1.0, ROUND_BYTES / max(1, unread.total() * self._weight))
            left = {process: max(LEAST_BYTES, int(size * part)) for process, size in unread.items()}
            records = size = 0
            for file, segment in news:
                before = segment.reader.offset
                if left[segment.process] <= 0:
                    self.unread = True
                else:
                    located = self._segments.read(segment, left[segment.process], self._processes)
                    if located and segment.reader.header is not None:
                        self._apply(segment, segment.reader.header, located)
                    self._segments.remember(segment)
                    left[segment.process] -= max(0, segment.reader.offset - before)
                    records, size = records + len(located), size + segment.reader.offset - before
                    if segment.reader.offset != before:
                        read, self.unread = True, self.unread or segment.has_news(file)
            if size > 0:
                self._weight = 1 + OVERHEAD_BYTES * records / size
            self._state.put_offsets(self._calls.taken())
            self._traces.store()
            self._learn()
            self._processes.watch(files, self._segments.readers)
        return read

    def _apply(self, segment: Segment, header: Header, records: Iterable[Located]) -> None:
        process = segment.process
        clock = f"anchor:{header.boot_id or process}"
        if self._state.meta(clock) is None:
            self._state.put_meta(clock, str(self.clocks.get(header.boot_id, header.wall_ns - header.mono_ns)))
        shift, last = anchor(self._state, process, header), header.mono_ns
        for located in records:
            record = located.record
            if isinstance(record, (Open, Close)):
                if record.at > last:
                    last = record.at
                self._calls.read(segment, located, record, record.at + shift)
                continue
            last = max(last, getattr(record, "at", 0))
            if isinstance(record, Define):
                self._segments.define(segment, record)
            elif isinstance(record, Fact) and record.name == REQUEST:
                self._requested(record)
            elif isinstance(record, (Fact, TokenFacts)):
                told = self._facts.add(segment.id, located.offset, record, record.at + shift)
                self._has_news(told, isinstance(record, TokenFacts) and len(record.value) > 1)
            elif isinstance(record, StepFacts):
                facts.store_step(self._state, record)
                for subscriber in self._subscribers:
                    subscriber.recorded(record.step)
            elif isinstance(record, Bind):
                self._bind(record)
            elif isinstance(record, Report):
                self._processes.report(process, record)
            elif isinstance(record, Counters):
                self._processes.count(process, record)
        self._processes.heard(process, last + shift)

    def _requested(self, fact: Fact) -> None:
        for orphan, join in self._joins.request(fact):
            if orphan in self._traces.open:
                self._traces.touch(join.trace_id, self._state.row(join.trace_id) or TraceRow(join.trace_id))
                self._joins.move(orphan, join, self._traces.open, self._calls.offsets)
                del self._traces.open[orphan]
                self._calls.forget()
                self.loader.kept.drop(orphan)
            else:  # delivered already: the orphan stays a trace of its own
                self._joins.forget(orphan)
        self._has_news(self._facts.named(fact))

    def _has_news(self, trace_ids: Iterable[str], of_calls: bool = False) -> None:
        """Record read facts. ``of_calls``: the trainer's values of tokens, which make a complete trace anew."""
        for trace_id in trace_ids:
            if of_calls or trace_id in self._traces.open:
                self._traces.touch(trace_id)
            else:
                self._told.add(trace_id)

    def _learn(self) -> None:
        """Tell the subscribers which facts of complete traces changed. Inside a transaction."""
        told, self._told = self._told, set()
        for trace_id in told - self._traces.open.keys():
            row = self._state.row(trace_id)
            if row is None or not row.complete:  # all facts are looked up once the trace is complete
                continue
            if msgspec.json.decode(row.facts) != (now := facts_of(self._state, trace_id)):
                add_facts(row, now)
                row.version += 1
                for subscriber in self._subscribers:
                    subscriber.learned(row)
                self._state.put_rows([row])

    def _root(self, trace: OpenTrace, name: str, role: str, record: Open, at: int) -> None:
        """Set the identity of a trace whose root has begun, and assign the facts that waited for the trace."""
        row = trace.row
        trace.root = record.span
        attributes = jsonable(record.attributes or {})
        trace.is_part = OF in attributes
        begin(row, name, role, at, attributes)
        if row.uid is not None and row.session is not None and role == "trajectory":
            row.attempt = 1 + self._state.count(
                # Before V1, veRL numbers the rollouts of a group anew on each worker with a part of the group: two
                # rollouts with the same number at the same time are neighbours, not attempts.
                "SELECT count(*) FROM traces WHERE uid = ? AND session = ? AND trace_id != ?"
                " AND (? OR status != 'OPEN')",
                (row.uid, row.session, row.trace_id, "session_id" in attributes),
            )
        trace.stored = False
        if row.uid is not None:  # the state finds other traces of the group, and waiting facts
            self._state.put_rows([row])
            trace.stored = True
            self._facts.arrived(row)
        for key in _CONFIG_KEYS:  # a trace without a project (the trainer's step) belongs to the project of the others
            if attributes.get(key) and self._state.meta(f"config:{key}") is None:
                self._state.put_meta(f"config:{key}", str(attributes[key])[:250])

    def _bind(self, record: Bind) -> None:
        value = {str(key): jsonable(item) for key, item in sorted(record.value.items())}
        sql = "INSERT OR IGNORE INTO binds (name, value) VALUES (?, ?)"
        if self._state.db.execute(sql, (record.name, msgspec.msgpack.encode(value))).rowcount < 1:
            return
        if record.name == "config":
            for key in _CONFIG_KEYS:
                if isinstance(value.get(key), str):
                    self._state.put_meta(f"config:{key}", value[key])
        for subscriber in self._subscribers:
            subscriber.bound(record.name, value)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def settle(self, over: bool) -> int:
        """Finish the traces that expect nothing more (``over``: all), tell the subscribers, and return their
        number."""
        if not self.behind:  # else nothing was read since, and silence means nothing
            self._settled_at = time.monotonic()
        now, ended = self._settled_at, self._processes.has_ended
        self._traces.wake(ONCE_PER_ROUND, over)
        verdicts = ((trace, trace.verdict(now, ended, over)) for trace in self._traces.open.values())
        settled = list(islice((each for each in verdicts if each[1] is not None), ONCE_PER_ROUND))
        done: list[bool] = []
        if settled and self.has_room:
            self.loader.refresh()
            with self._state:
                for trace, verdict in settled:
                    if self.has_room:
                        done.append(self._complete(trace, verdict == "final"))
                self._learn()
        self.behind = bool(done) and all(done) and (len(done) < len(settled) or len(done) == ONCE_PER_ROUND)
        return len(done)

    def _complete(self, trace: OpenTrace, final: bool) -> bool:
        row = trace.row
        try:
            look = self.loader.look(row, final=final)
        except OSError:  # the file system fails: try again
            trace.touch()
            return False
        del self._traces.open[row.trace_id]
        if look is None and not row.name:  # ends of calls whose beginnings were not recorded: there is no trace
            self._state.db.execute("DELETE FROM traces WHERE trace_id = ?", (row.trace_id,))
            return True
        row.version += 1
        row.complete = True
        if look is not None:
            fill(row, look, self.loader.about.settings)
            self._state.db.executemany(
                "INSERT OR IGNORE INTO digests VALUES (?, ?)", ((digest, row.trace_id) for digest in look.digests)
            )
            changed = self._facts.digested(row, look.digests)
            if row.trace_id in changed:
                add_facts(row, facts_of(self._state, row.trace_id))
            self._told |= changed - {row.trace_id}
            for subscriber in self._subscribers:
                subscriber.completed(row)
        if not row.kept:  # the trace waits for its group, or stays in the spool
            self.loader.recent.drop(row.trace_id)
        self._state.put_rows([row])
        return True
