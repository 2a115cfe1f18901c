"""Load a trajectory: find the records through the state and assemble the records, or read the tables if the segments
are gone; add facts and losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from autotrace.insight.profile import decode
from autotrace.run.info import RunInfo
from autotrace.ship.assembly.about_run import AboutRun
from autotrace.ship.assembly.assembler import Assembly, Callee, Origin
from autotrace.ship.assembly.recent import Assembled, KeptRecords, Recent
from autotrace.ship.assembly.token_sequences import add_columns
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.reader import Budget, Located, SegmentFile, opened, records_at
from autotrace.spool.records import Close, Header, Open
from autotrace.tables.committed import Committed
from autotrace.tables.errors import Gone, QueryError
from autotrace.trajectory.jsonable import jsonable, number, text
from autotrace.trajectory.model import Span, Trajectory, has_score

STORED = 1 << 20
"""Approximate bytes of memory of a trajectory from the tables."""
MAX_ORIGINS = 4096
"""Maximum number of segments whose origin is remembered."""


class Look(NamedTuple):
    """Hold a trace for its summary."""

    trajectory: Trajectory
    digests: list[str]
    """Digests of the responses: the agent's output and the response of each call."""


class Loader:
    """Assemble traces of a run. Reads the state and the segments, writes neither.

    ``ahead``: bytes of examined traces that are kept for the next load.
    """

    def __init__(self, state: State, run_folder: str | Path, info: RunInfo, ahead: int = 0) -> None:
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self.about = AboutRun(state)
        self.recent = Recent(ahead)
        """Examined traces that will be loaded."""
        self._some_removed = self._some_joined = self._some_facts = True
        """Whether any trace of the run has removed records, joins, facts; if not, no trace is looked up."""
        self._tables: Committed | None = None
        """Tables for traces whose records were removed."""
        self.kept = KeptRecords()
        """Records that the indexer has read; empty if the indexer is another process."""
        self._origins: dict[int, tuple[str, int, Origin]] = {}
        """Segment -> name, number in the process's series, origin."""

    def refresh(self) -> None:
        """Read facts about the run again. Call before examining or loading any number of traces: facts about the run
        are then read once."""
        self.about.refresh()
        some = "SELECT EXISTS (SELECT 1 FROM removed), EXISTS (SELECT 1 FROM joins), EXISTS (SELECT 1 FROM facts)"
        self._some_removed, self._some_joined, self._some_facts = map(bool, self._state.db.execute(some).fetchone())
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    def load(self, trace_id: str) -> Trajectory | None:
        """Load a trace as far as recorded, for the caller alone; None when no record is left. Raises ``OSError`` while
        a segment cannot be read."""
        self.refresh()
        assembled = self._assembled(trace_id, False)
        return None if assembled is None else self._described(trace_id, assembled)

    def load_sized(self, trace_id: str) -> tuple[Trajectory, int] | None:
        """Load a complete trace as ``load``, without ``refresh``; also return the approximate bytes of memory. Take
        the examined trace, if no more records were read since. Open calls count as interrupted even in living
        processes."""
        assembled = self.recent.take(trace_id) or self._assembled(trace_id, True)
        return None if assembled is None else (self._described(trace_id, assembled), assembled.size)

    def known(self, trace_id: str) -> Trajectory | None:
        """Return a complete trace without calls: the root and all facts, from the state alone. None if the state lacks
        the facts (an earlier release completed the trace, or its profile failed)."""
        row = self._state.row(trace_id)
        known = None if row is None or not row.root_id else decode(row.profile)
        if row is None or known is None or len(known.turns) != row.turns:
            return None
        attributes = msgspec.json.decode(row.attributes)
        root = Span(row.root_id, None, row.name, row.role, "", row.start_ns or 0, row.end_ns, row.status)
        root.attributes = attributes
        return Trajectory(
            trace_id, self._info.run_id, [root], attributes, msgspec.json.decode(row.facts), profile=row.profile,
            settings=self.about.encoded_settings, late_spans=row.late_spans, version=row.version,
        )  # fmt: skip

    def look(self, row: TraceRow, *, final: bool) -> Look | None:
        """Load a trace for examination, without changes. ``row``: current line of the trace."""
        trace_id = row.trace_id
        assembled = self._assembled(trace_id, final)
        if assembled is None:
            return None
        trajectory = self._described(trace_id, assembled, row)
        self.recent.put(trace_id, assembled)
        return Look(trajectory, assembled.digests)

    def _assembled(self, trace_id: str, final: bool) -> Assembled | None:
        offsets_of, before = self._state.offsets_of(trace_id), None  # in this order: a removal deletes the offsets
        if self._some_removed and self._state.removed(trace_id):
            before = self._written(trace_id)
            if before is None:  # the rest alone would be another trajectory
                return None
        assembly, read = Assembly(before.spans if before else ()), 0
        own = bytes.fromhex(trace_id)
        below = "SELECT orphan, span FROM joins WHERE trace_id = ?"  # traces that were joined to this trace, and where
        rows = self._state.db.execute(below, (trace_id,)) if self._some_joined else ()
        joined: dict[bytes, int] = {bytes.fromhex(orphan): span for orphan, span in rows}
        kept, budget = self.kept.take(trace_id, offsets_of), Budget()
        for segment, name, origin in self._in_order(offsets_of):
            try:
                for located in kept[segment] if kept else self._read(name, offsets_of[segment], budget):
                    record = located.record
                    read += located.size
                    if not isinstance(record, (Open, Close)):
                        continue
                    if joined and record.trace in joined and isinstance(record, Open) and not record.parent:
                        record = msgspec.structs.replace(record, parent=joined[record.trace])
                    if record.trace == own or record.trace in joined:
                        assembly.add(origin, record)
            except FileNotFoundError:
                if before is None and self._state.removed(trace_id):  # removed at this moment
                    self._some_removed = True
                    return self._assembled(trace_id, final)
                assembly.lost(name)
        if before is not None and not assembly.grew:
            return Assembled(before.spans, before.notes, [], [], lasting=False, bytes=STORED, before=before)
        assembled = assembly.finish(self.ended, final)
        if before is not None and assembled is not None:
            notes = list(dict.fromkeys([*before.notes, *assembled.notes]))
            assembled = assembled._replace(notes=notes, lasting=False, before=before)
        return None if assembled is None else assembled._replace(bytes=read)

    def _written(self, trace_id: str) -> Trajectory | None:
        """Return the trace as stored in the tables. Raises ``OSError`` while the tables cannot be read."""
        try:
            if self._tables is None or not self._tables.has_commits:
                self._tables = Committed(Path(self._run_folder))
            return self._tables.stored([trace_id]).get(trace_id)
        except (Gone, QueryError) as error:
            raise OSError(str(error)) from error

    def records_of(self, trace_id: str) -> Iterator[tuple[Origin, list[Located] | None]]:
        """Yield segments and the trace's records that were read before; None for a segment that cannot be read now.
        Removed segments are left out."""
        offsets_of, budget = self._state.offsets_of(trace_id), Budget()
        for segment, name, origin in self._in_order(offsets_of):
            try:
                yield origin, list(self._read(name, offsets_of[segment], budget))
            except FileNotFoundError:
                continue
            except OSError:
                yield origin, None

    def _read(self, name: str, offsets: Sequence[int], budget: Budget) -> Iterator[Located]:
        with opened(self._run_folder, name) as fd:
            yield from records_at(fd, offsets, budget)

    def _described(self, trace_id: str, assembled: Assembled, row: TraceRow | None = None) -> Trajectory:
        """Build the trajectory with current facts. ``row``: line of the trace, if at hand."""
        spans, before = assembled.spans, assembled.before
        attributes = dict(spans[0].attributes if before is None else before.attributes)
        trajectory = Trajectory(
            trace_id, self._info.run_id, spans, attributes, notes=list(assembled.notes),
            tokenizer=None if before is None else before.tokenizer,
        )  # fmt: skip
        row = row or self._state.row(trace_id) or TraceRow(trace_id)
        config = self.about.config
        for name, given in (("project_name", self._info.project), ("experiment_name", self._info.experiment)):
            if given:
                attributes[name] = given
            elif attributes.get(name) is None and name in config:
                attributes[name] = config[name]
        attributes["run_id"] = self._info.run_id
        trajectory.profile, trajectory.version = row.profile, max(1, row.version)
        if trajectory.root.role == "trajectory":
            attributes["attempt"] = row.attempt
        trajectory.late_spans = row.late_spans
        if row.late_spans:
            trajectory.notes.append(f"{row.late_spans} late calls: they began after the trajectory had ended")
        trajectory.facts = facts_of(self._state, trace_id) if self._some_facts else {}
        trajectory.settings = self.about.encoded_settings
        add_columns(trajectory, self._state, self._run_folder)
        trajectory.notes += self.about.losses(assembled.processes)
        return trajectory

    def _in_order(self, segments: Iterable[int]) -> list[tuple[int, str, Origin]]:
        """Return name and origin of each segment, in the order of writing."""
        entries = []
        for segment in segments:
            found = self._origins.get(segment) or self._origin(segment)
            if found is not None:
                name, sequence, origin = found
                entries.append((origin.process, sequence, segment, name, origin))
        return [entry[2:] for entry in sorted(entries, key=lambda entry: entry[:2])]

    def _origin(self, segment: int) -> tuple[str, int, Origin] | None:
        """Return name, number and origin of a segment; remembered, because the values do not change."""
        row = self._state.db.execute("SELECT name, header FROM segments WHERE id = ?", (segment,)).fetchone()
        if row is None or row["header"] is None:
            return None
        file = SegmentFile(row["name"], 0, 0)
        header = msgspec.msgpack.decode(row["header"], type=Header)
        shift = anchor(self._state, file.process, header)
        origin = Origin(file.process, header, lambda: self._targets(segment), shift)
        if len(self._origins) >= MAX_ORIGINS:
            self._origins.clear()
        found = self._origins[segment] = (row["name"], file.sequence, origin)
        return found

    def _targets(self, segment: int) -> dict[int, Callee]:
        """Return the targets that a segment has named so far."""
        return {
            define["id"]: Callee(text(define["key"]), text(define["name"]) or "?", text(define["role"]))
            for define in self._state.db.execute("SELECT * FROM defines WHERE segment = ?", (segment,))
        }

    def ended(self, process: str) -> tuple[int, str] | None:
        """Return the time of the last record of a process, and how the process ended; None while living."""
        row = self._state.db.execute(
            "SELECT last_ns, ended FROM processes WHERE process = ? AND ended IS NOT NULL", (process,)
        ).fetchone()
        return None if row is None else (int(row[0]), str(row[1]))


TRAINED = "trained_in_step"
"""Fact whose reports are all kept, as ``trained_in_steps``, if reported more than once."""


def facts_of(state: State, trace_id: str) -> dict[str, Any]:
    """Return the facts of a trace by name; the latest report of a name counts; ``name.1`` belongs to the second
    output."""
    facts: dict[str, Any] = {}
    trained: list[Any] = []
    for row in state.db.execute(
        "SELECT name, value, output FROM facts WHERE trace_id = ? ORDER BY at_ns, segment, offset", (trace_id,)
    ):
        name = row["name"] if row["output"] in (None, "0") else f"{row['name']}.{row['output']}"
        facts[name] = jsonable(msgspec.msgpack.decode(row["value"]))
        if name == TRAINED:
            trained.append(facts[name])
    if len(trained) > 1:
        facts[f"{TRAINED}s"] = trained
    reward: Any = facts.get("reward")
    if has_score(reward):
        facts["reward"] = reward["score"]
        rest = {name: value for name, value in reward.items() if name != "score"}
        if rest and "reward_extra_info" not in facts:
            facts["reward_extra_info"] = rest
    computed = facts.get(token_facts.TOKEN_FACTS)
    if isinstance(computed, dict):
        facts |= {name: computed[name] for name in token_facts.SHOWN if name in computed}
    score = number(facts.get("token_level_score"))
    if score is not None:  # the trainer's reward as float32: kept only if it differs from the reward
        reward_before = number(facts.setdefault("reward", score))
        if reward_before is not None and math.isclose(reward_before, score, rel_tol=1e-5, abs_tol=1e-6):
            del facts["token_level_score"]
    return facts


def anchor(state: State, process: str, header: Header) -> int:
    """Return nanoseconds from a segment's monotonic clock to the wall clock: the same for all processes of a boot."""
    remembered = state.meta(f"anchor:{header.boot_id or process}")
    return header.wall_ns - header.mono_ns if remembered is None else int(remembered)
