"""Reads what the processes of a run write and keeps the state's picture of it: who lives, which traces there are, where
their records lie, which are complete. Delivers nothing and keeps no content in memory.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.loader import Loader, anchor, binds_of
from autotrace.ship.delivery.tail_sampling import Gate, group_of
from autotrace.ship.index import processes
from autotrace.ship.index.facts import FactBook
from autotrace.ship.index.joins import Joins
from autotrace.ship.index.open_traces import GRACE, LiveTrace
from autotrace.ship.index.summary import digests, summarise
from autotrace.ship.store.row import Row, identity
from autotrace.ship.store.state import State
from autotrace.sinks import registry
from autotrace.spool.reader import Located, SegmentFile, SegmentReader, opened, records_at, segments
from autotrace.spool.records import REQUEST, Bind, Close, Counters, Define, Fact, Header, Open, Report
from autotrace.trajectory.jsonable import plain, text

ROUND_BYTES = 64 << 20
"""Read in one transaction at most, about."""
ONCE_PER_ROUND = 256
"""Traces completed in one transaction at most."""
_CONFIG_KEYS = ("project_name", "experiment_name")


class Indexer:
    """The picture of one run; ``round`` reads on, ``settle`` decides which traces are complete."""

    def __init__(self, state: State, run_folder: str | Path, info: RunInfo, backends: Sequence[str]) -> None:
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._backends = backends  # the run's own list, which veRL's configuration may change (ship.backend_choice)
        self.loader = Loader(state, run_folder, info)
        self.processes = processes.Processes(state, run_folder)
        self._facts = FactBook(state)
        self._joins = Joins(state)
        self.gate = Gate(state, backends, info)
        self.live: dict[str, LiveTrace] = {}
        """Traces that are open, or of which something new was read."""
        self.binds: list[tuple[str, dict[str, Any]]] = []
        """What became known about the run, in order, those remembered from earlier included."""
        self.last_progress = time.monotonic()
        """When a record of a trace was read last."""
        self.clocks: Mapping[str, int] = {}
        """Boot -> nanoseconds from its monotonic clock to our wall clock, for nodes that told
        (``ship.cluster.receiver``)."""
        self._readers: dict[str, SegmentReader] = {}
        self._ids: dict[str, int] = {}
        self._roles: dict[str, dict[int, tuple[str, str]]] = {}
        self._remember()

    def _remember(self) -> None:
        """Continue where the last collector of this run stopped."""
        for name, row in self._state.segments().items():
            header = None if row["header"] is None else msgspec.msgpack.decode(row["header"], type=Header)
            reader = SegmentReader(self._run_folder, name, row["offset"], header)
            reader.sealed, reader.unusable = row["sealed"], row["unusable"]
            self._readers[name], self._ids[name] = reader, row["id"]
            self._roles[name] = {
                define["id"]: (define["name"], define["role"])
                for define in self._state.db.execute("SELECT * FROM defines WHERE segment = ?", (row["id"],))
            }
        self.binds.extend(binds_of(self._state))
        names = {id: name for name, id in self._ids.items()}
        for known in self._state.rows("complete = 0"):
            live = self.live[known.trace_id] = LiveTrace(known)
            if known.role == "engine":
                self._joins.wait(known.trace_id, msgspec.json.decode(known.attributes).get("request_id"))
            for segment, offsets in self._state.places(known.trace_id).items():
                process = SegmentFile(names[segment], 0, 0).process
                try:
                    with opened(self._run_folder, names[segment]) as fd:
                        live.replay(process, (self._joins.placed(found.record) for found in records_at(fd, offsets)))
                except OSError:
                    continue

    # -- reading -------------------------------------------------------------------------------------------------------

    def round(self) -> bool:
        """Read what is new in all segments and store it in one transaction; True when there was any."""
        budget, read = ROUND_BYTES, False
        places: dict[tuple[str, int], array[int]] = {}
        files = segments(self._run_folder)
        with self._state:
            for file in files:
                reader = self._reader(file)
                before = reader.offset
                # An incomplete tail is looked at again only when the file has changed.
                if (
                    budget > 0
                    and file.size != before
                    and not reader.finished
                    and (reader.incomplete is None or file.size != reader.tried)
                ):
                    self._take(file, reader, places, budget)
                    budget -= max(0, reader.offset - before)
                    read = read or reader.offset != before
            for live in self.live.values():
                if live.dirty:
                    self._state.put_row(live.row)
                    live.dirty = False
            self._state.put_places(places)
            self.processes.watch(files, self._readers)
        return read

    def _reader(self, file: SegmentFile) -> SegmentReader:
        reader = self._readers.get(file.name)
        if reader is None:
            reader = self._readers[file.name] = SegmentReader(self._run_folder, file.name)
            self._ids[file.name] = self._state.add_segment(file.name)
            self._roles[file.name] = {}
        return reader

    def _take(
        self, file: SegmentFile, reader: SegmentReader, places: dict[tuple[str, int], array[int]], budget: int
    ) -> None:
        try:
            located = reader.read(budget)
        except OSError:
            return
        if reader.header is not None and reader.header.run_id != self._info.run_id:
            reader.unusable, located = f"it belongs to the run {text(reader.header.run_id)}", []
        self.processes.skipped(file.process, reader)
        if located and reader.header is not None:
            self._apply(file, reader.header, located, places)
        self._state.put_segment(self._ids[file.name], reader.offset, reader.header, reader.sealed, reader.unusable)

    def _apply(
        self, file: SegmentFile, header: Header, found: Iterable[Located], places: dict[tuple[str, int], array[int]]
    ) -> None:
        segment, process, roles = self._ids[file.name], file.process, self._roles[file.name]
        clock = f"anchor:{header.boot_id or process}"
        if self._state.meta(clock) is None:
            self._state.put_meta(clock, str(self.clocks.get(header.boot_id, header.wall_ns - header.mono_ns)))
        shift = anchor(self._state, process, header)
        for located in found:
            record = located.record
            at = getattr(record, "at", None)
            if at is not None:
                self.processes.heard(process, at + shift)
            if isinstance(record, (Open, Close)):
                if len(record.trace) != 16:
                    self.processes.skip(process, "invalid record")
                    continue
                trace_id, record = self._placed(record, roles)
                places.setdefault((trace_id, segment), array("q")).append(located.offset)
                self._follow(trace_id, process, record, roles, shift)
            elif isinstance(record, Define):
                roles[record.id] = (record.name, record.role)
                self._state.put_define(segment, record)
            elif isinstance(record, Fact) and record.name == REQUEST:
                self._requested(record, places)
            elif isinstance(record, Fact):
                self._touch(self._facts.add(segment, located.offset, record, record.at + shift))
            elif isinstance(record, Bind):
                self._bind(record)
            elif isinstance(record, Report):
                self.processes.report(process, record)
            elif isinstance(record, Counters):
                self.processes.count(process, record)

    def _placed(self, record: Open | Close, roles: dict[int, tuple[str, str]]) -> tuple[str, Open | Close]:
        """The trace a record belongs to, which is not its own if that was joined to another."""
        trace_id = record.trace.hex()
        join = self._joins.of(trace_id)
        if join is None and isinstance(record, Open) and record.parent == 0:
            join = self._joins.root(trace_id, record, roles.get(record.target, ("?", "span"))[1])
        return (trace_id, record) if join is None else (join.trace_id, self._joins.placed(record))

    def _requested(self, fact: Fact, places: dict[tuple[str, int], array[int]]) -> None:
        found = self._joins.request(fact)
        if found is None:
            return
        orphan, join = found
        if orphan in self.live:
            self._touch([join.trace_id], create=True)
            self._joins.move(orphan, join, self.live, places)
            del self.live[orphan]
        else:  # delivered already: it stays a trace of its own
            self._joins.forget(orphan)

    def _follow(
        self, trace_id: str, process: str, record: Open | Close, roles: dict[int, tuple[str, str]], shift: int
    ) -> None:
        touched = self._touch([trace_id], create=True)
        if not touched:
            self.processes.skip(process, "of a removed trace")
            return
        live = touched[0]
        if isinstance(record, Close):
            live.closed(record.span)
            return
        name, role = roles.get(record.target, ("?", "span"))
        live.opened(record.span, record.parent, process, role)
        if record.parent == 0 and not live.row.name:
            self._root(live, text(name) or "?", text(role), record, record.at + shift)

    def _root(self, live: LiveTrace, name: str, role: str, record: Open, at: int) -> None:
        """The trace has a name now: who it is, and which facts had been waiting for it."""
        row = live.row
        row.name, row.role, row.start_ns = name, role, at
        live.root = record.span
        attributes = plain(record.attributes or {})
        for column, value in identity(attributes).items():
            setattr(row, column, value)
        row.attributes = msgspec.json.encode(attributes).decode()
        row.group_key = group_of(row)
        if row.uid is not None and row.session is not None and role == "trajectory":
            row.attempt = 1 + self._state.count(
                # Before V1, veRL numbers the rollouts of a group anew on each worker that got a part of it: two of one
                # number at the same time are neighbours, not attempts.
                "SELECT count(*) FROM traces WHERE uid = ? AND session = ? AND trace_id != ?"
                " AND (? OR status != 'OPEN')",
                (row.uid, row.session, row.trace_id, "session_id" in attributes),
            )
        self._state.put_row(row)
        self._facts.arrived(row)
        for key in _CONFIG_KEYS:  # what has no project of its own (the trainer's step) belongs where the others are
            if attributes.get(key) and self._state.meta(f"config:{key}") is None:
                self._state.put_meta(f"config:{key}", str(attributes[key])[:250])

    def _bind(self, record: Bind) -> None:
        value = {str(key): plain(item) for key, item in sorted(record.value.items())}
        cursor = self._state.db.execute(
            "INSERT OR IGNORE INTO binds (name, value) VALUES (?, ?)", (record.name, msgspec.msgpack.encode(value))
        )
        if cursor.rowcount < 1:
            return
        self.binds.append((record.name, value))
        if record.name == "config":
            for key in _CONFIG_KEYS:
                if isinstance(value.get(key), str):
                    self._state.put_meta(f"config:{key}", value[key])
        for backend in registry.linked_by(record.name, self._backends):  # with the link to the trainer's run
            self._state.enqueue_again(backend)

    def _touch(self, trace_ids: Iterable[str], create: bool = False) -> list[LiveTrace]:
        """Something new was read about these traces."""
        touched = []
        for trace_id in trace_ids:
            live = self.live.get(trace_id)
            if live is None:
                row = self._state.row(trace_id)
                if row is None and not create:
                    continue
                if row is not None and self._state.removed(trace_id):
                    continue
                live = self.live[trace_id] = LiveTrace(row or Row(trace_id))
                live.row.complete = False
            live.touch()
            self.last_progress = live.touched
            touched.append(live)
        return touched

    def hurry(self) -> None:
        """Let no trace wait for its grace: for a reader that wants an answer now."""
        for live in self.live.values():
            live.touched -= GRACE

    # -- deciding ------------------------------------------------------------------------------------------------------

    def settle(self, over: bool) -> int:
        """Complete the traces of which nothing more is to be expected and queue them; how many there were.

        ``over``: the run is, so nobody waits for anything any more.
        """
        now = time.monotonic()
        ended = self.processes.has_ended
        ready = [(id, verdict) for id, live in self.live.items() if (verdict := live.verdict(now, ended, over))]
        with self._state:
            for trace_id, verdict in ready[:ONCE_PER_ROUND]:
                self._complete(self.live.pop(trace_id), final=verdict == "final")
            decided = self.gate.settle([live.row for live in self.live.values()], over)
        return min(len(ready), ONCE_PER_ROUND) + decided

    def _complete(self, live: LiveTrace, final: bool) -> None:
        row = live.row
        try:
            trajectory = self.loader.load(row.trace_id, final=final)
        except OSError:  # a file system in trouble: later
            self.live[row.trace_id] = live
            live.touch()
            return
        if trajectory is None and not row.name:  # ends of calls whose beginnings nobody recorded: there is no trace
            self._state.remove_row(row.trace_id)
            return
        if trajectory is not None:
            summarise(row, trajectory)
            for digest in digests(trajectory):
                self._state.db.execute("INSERT OR IGNORE INTO digests VALUES (?, ?)", (digest, row.trace_id))
            if self._facts.digested(row):
                trajectory = self.loader.load(row.trace_id, final=final) or trajectory
                summarise(row, trajectory)
            self.gate.completed(row)
        row.version += 1
        row.complete = True
        self._state.put_row(row)
