"""Read a run folder (state, segments and tables). The run may go on, or never have had a shipper."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from autotrace.insight import profile as profiles
from autotrace.insight.settings import TrainerSettings
from autotrace.run import files, layout
from autotrace.run.drain import shipper_alive
from autotrace.run.info import RunInfo, not_readable
from autotrace.run.status import Status
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.index import facts
from autotrace.ship.index.processes import status_now
from autotrace.ship.store.delivery_queue import TABLES as IN_TABLES
from autotrace.ship.store.delivery_queue import not_in_tables
from autotrace.ship.store.migrations import NewerDatabase
from autotrace.ship.store.row import COLUMNS
from autotrace.ship.store.state import State
from autotrace.spool.reader import segments, unreadable
from autotrace.tables import labels, metrics
from autotrace.tables.commits import FILE, FOLDER
from autotrace.tables.committed import Committed
from autotrace.tables.errors import Gone
from autotrace.tables.labels import Label
from autotrace.tables.metrics import METRICS, OfStep
from autotrace.tables.reader import mapping
from autotrace.tables.rollout import ROLES, json
from autotrace.tables.schema import FACTS
from autotrace.tables.sources import Delivery, Lines, Steps
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.durations import PARTS
from autotrace.trajectory.jsonable import number, word
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import answered_ids, asked_ids

if TYPE_CHECKING:  # assembly and decoding are imported at the first use: the imports take most of a command's time
    from autotrace.ship.assembly.decoding import Decoder
    from autotrace.ship.index.indexer import Indexer

_GIVEN = {
    **{column.name: column.name for column in TRAJECTORIES.columns if column.name in COLUMNS},
    "complete": "complete",
    "llm_calls": "turns",
    "duration_s": "(end_ns - start_ns) / 1e9",
    "group_id": "CASE WHEN group_key > '' THEN group_key ELSE trace_id END",
    "facts": "CASE WHEN json_valid(facts) THEN facts END",
    "attributes": "CASE WHEN json_valid(attributes) THEN attributes END",
    "profile": "nullif(profile, '{}')",
    "is_trajectory": f"coalesce(role, '') IN ('', {', '.join(map(repr, sorted(ROLES)))})",
    **{name: f"CASE WHEN json_valid(times) THEN json_extract(times, '$.{name}') END" for name in PARTS},
}  # fmt: skip
"""Map column of ``trajectories`` -> SQL over the state."""
_MADE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "agent_name": ("attributes", lambda text: word(mapping(text).get("agent_name"))),
    "chains": ("profile", lambda text: profiles.chains(profiles.decode(text))),
    "findings": ("profile", lambda text: profiles.codes(profiles.decode(text))),
    "traits": ("profile", lambda text: profiles.traits(profiles.decode(text))),
    "truncated": ("profile", lambda text: profiles.is_truncated(profiles.decode(text))),
    "tool_error": ("profile", lambda text: profiles.has_tool_error(profiles.decode(text))),
    **{
        column.name: ("facts", lambda text, column=column: column.fact(mapping(text).get(column.name)))  # type: ignore[misc]
        for column in TRAJECTORIES.columns
        if column.fact and column.name not in _GIVEN
    },
}
"""Map column of ``trajectories`` -> a column of the state, and a function of its value."""
ENDED_EARLY = "the shipper ended early: this reader completed trajectories in memory; autotrace ship completes the run"


class _Opened(NamedTuple):
    state: State
    indexer: Indexer | None
    """Hold the indexer if segments were read into memory."""
    problem: str


class Live(Committed):
    """Read the traces of one run. Use ``open``; delivers nothing."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        self.path, self.info = folder, info
        self._decoder: Decoder | None = None
        rests = _rests(folder)  # before reading the tables' ids: nothing falls between
        self._read: frozenset[str] | None = frozenset() if rests else not_in_tables(self._state)
        super().__init__(folder)
        if not self.has_commits:
            self._read = None
        self._all_in_tables = rests and self.has_commits

    @classmethod
    def open(cls, folder: str | Path) -> Live:
        """Open a source of the run ``folder``, which may be a stranger's: nothing is written there, and no link in the
        folder is followed. Raises the errors of ``RunInfo.read``, and ``PermissionError`` with one sentence."""
        folder = Path(folder)
        info = RunInfo.read(folder)
        closed = unreadable(folder)
        if closed is not None:  # a part of the run would look like the whole run
            raise not_readable(closed)
        return cls(folder, info)

    @cached_property
    def _opened(self) -> _Opened:
        """Open the shipper's state if a shipper is at work, else read the missing part into memory. Checking a finished
        run's state takes longer than most questions: the state is opened only for what the tables lack."""
        problem = ""
        try:
            state = State.read_only(self.path)
            read = {name: row["offset"] for name, row in state.segments().items()}
            everything = all(file.size <= read.get(file.name, -1) for file in segments(self.path))
            decided = everything and not state.count("SELECT EXISTS (SELECT 1 FROM traces WHERE NOT complete)")
            if decided or shipper_alive(str(self.path)):
                return _Opened(state, None, "")
            began, state = state.count("SELECT count(*) FROM segments"), state.copy()
            return _Opened(state, _refreshed(state, self.path, self.info), ENDED_EARLY if began else "")
        except sqlite3.Error as error:
            if isinstance(error, NewerDatabase):
                problem = f"what was delivered is not known here, {layout.STATE_DB} cannot be used: {error}"
        state = State(":memory:")
        return _Opened(state, _refreshed(state, self.path, self.info), problem)

    @property
    def _state(self) -> State:
        return self._opened.state

    @property
    def problem(self) -> str:
        """See ``Source``."""
        return "" if self._all_in_tables else self._opened.problem

    def take_over(self, before: Live) -> None:
        """Take the tokenizer of an earlier source of the run."""
        self._decoder = before._decoder

    # -- tables --------------------------------------------------------------------------------------------------------

    def files(self, table: str) -> Sequence[str]:
        """See ``Source``. The trainer's metrics are in the state, except in a copy of the tables."""
        return () if table == METRICS.name and self._has_steps() else super().files(table)

    def _has_steps(self) -> bool:
        return not self._all_in_tables and bool(facts.step_numbers(self._state))

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines | None:
        """See ``Source``: the columns that the state has need no segment."""
        if self._all_in_tables:
            return iter(())
        if table == METRICS.name:
            numbers = metrics.rows(self.info.run_id, facts.read_steps(self._state, steps[0] if steps else None))
            return (tuple(getattr(one, name) for name in columns) for one in numbers)
        if table == FACTS.name:
            return self._facts(columns, steps)
        if table != TRAJECTORIES.name or not {*columns} - {*shown} <= {*_GIVEN, *_MADE, "run_id", "settings"}:
            return None
        settings = TrainerSettings.of(self.binds()).encode() if "settings" in columns else "{}"
        fixed = {"run_id": self.info.run_id, "settings": None if settings == "{}" else settings}
        makes = {place: _MADE[name][1] for place, name in enumerate(columns) if name in _MADE}
        sql = [_MADE[name][0] if name in _MADE else _GIVEN.get(name, "?") for name in columns]
        values = [fixed.get(name) for name in columns if name not in _MADE and name not in _GIVEN]
        rows = self._traces(f"SELECT {', '.join(sql)} FROM traces", values, steps)
        return (_made(row, makes) for row in rows) if makes else rows

    def _traces(self, sql: str, values: Sequence[Any], steps: Steps | None) -> Lines:
        cursor = self._state.db.cursor()
        cursor.row_factory = None  # plain tuples, in half of the time
        conditions = [] if steps is None else [f"step BETWEEN {int(steps[0])} AND {int(steps[1])}"]
        if self._read is not None:
            conditions.append("trace_id IN (SELECT value FROM json_each(?))")
            values = [*values, msgspec.json.encode(sorted(self._read)).decode()]
        within = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return cursor.execute(sql + within, values)

    def _facts(self, columns: Sequence[str], steps: Steps | None) -> Lines:
        names = ("trace_id", "step", "uid", "rollout_n", "validate", "version")
        for known, *identity in self._traces(f"SELECT facts, {', '.join(names)} FROM traces", (), steps):
            own: dict[str, Any] = {"run_id": self.info.run_id, **dict(zip(names, identity, strict=True))}
            own["validate"] = None if own["validate"] is None else bool(own["validate"])
            for name, value in mapping(known).items():
                own |= {"name": name, "number": number(value), "value": json(value)}
                yield tuple(own[column] for column in columns)

    def ids(self, steps: Steps | None) -> Sequence[str]:
        """See ``Source``."""
        if self._all_in_tables:
            return ()
        rows = self._traces("SELECT trace_id, start_ns FROM traces", (), steps)
        return [trace_id for trace_id, _ in sorted(rows, key=lambda row: (row[1] or 0, row[0]))]

    def size(self) -> int:
        """See ``Source``."""
        if self._all_in_tables:
            return super().size()
        ((size,),) = self._state.db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return super().size() + int(size)

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """See ``Source``."""
        if trace_id in (stored := self.stored([trace_id])):
            return stored[trace_id]
        from autotrace.ship.assembly.loader import Loader

        state, indexer, _ = self._opened
        loader = indexer.loader if indexer is not None else Loader(state, self.path, self.info)
        trajectory = loader.load(trace_id)
        if trajectory is None:
            raise Gone(f"the segments of trace {trace_id} are gone from the run folder")
        if texts:
            self._texts().add_texts(trajectory)
        return trajectory

    def stored(self, trace_ids: Sequence[str]) -> Mapping[str, Trajectory]:
        """See ``Source``."""
        read = self._read
        found = {} if read is None else super().stored([one for one in trace_ids if one not in read])
        for one in found.values():
            if any(asked_ids(span) or answered_ids(span) for span in one.llm_spans):
                self._texts().add_texts(one)  # a tokenizer may have been named since
        return found

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """See ``Source``."""
        return facts.read_steps(self._state, step) if self._has_steps() else super().step_facts(step)

    # -- run -----------------------------------------------------------------------------------------------------------

    @property
    def living(self) -> bool:
        """Return whether the run goes on, even if no backend takes anything from the run."""
        try:
            state = status_now(Status.read(self.path), self.path).state
        except (OSError, ValueError, msgspec.MsgspecError):
            return False
        return state == "running" or (state == "blocked" and shipper_alive(str(self.path)) is True)

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """See ``Source``."""
        return binds_of(self._state)

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """See ``Source``."""
        return self._texts().decode(ids, key)

    def _texts(self) -> Decoder:
        from autotrace.ship.assembly.decoding import Decoder

        if self._decoder is None:
            self._decoder = Decoder(self.path)
        for name, value in self.binds():
            if name == "tokenizer":
                self._decoder.bind(value)
        return self._decoder

    def status(self) -> Status:
        """Read the status that the shipper wrote last, or compute a status from the segments if no shipper ran."""
        try:
            status = Status.read(self.path)
        except (OSError, ValueError, msgspec.MsgspecError):
            status = self._computed()
        if self.problem:
            status.notes.append(self.problem)
        if self.problem == ENDED_EARLY:
            now = self._computed()
            for name in ("open", "traces", "trajectories", "pending", "died"):
                setattr(status, name, getattr(now, name))
        return status_now(status, self.path)

    def _computed(self) -> Status:
        from autotrace.ship.report import status_of

        return status_of(self._state, self.info, self.path, "running")

    def deliveries(self, trace_id: str) -> Mapping[str, Delivery]:
        """See ``Source``."""
        sql = "SELECT * FROM deliveries WHERE trace_id = ? AND backend != ?"
        rows = self._state.db.execute(sql, (trace_id, IN_TABLES))
        return {row["backend"]: (row["delivered_ns"], row["page"], row["rejected"]) for row in rows}

    def pages(self) -> Mapping[str, str]:
        """See ``Source``."""
        return dict(self._state.db.execute("SELECT trace_id, page FROM deliveries WHERE page IS NOT NULL").fetchall())

    def labels(self) -> Mapping[str, Label]:
        """See ``Source``."""
        return labels.read(self.path)

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """See ``Source``."""
        return {name: self._state.metas(f"backend:{name}:") for name in self.info.backends}

    def fingerprint(self) -> object:
        """See ``Source``. While a shipper is at work, its state counts: unread segments are not shown."""
        names = (layout.STATE_DB, f"{layout.STATE_DB}-wal", f"{FOLDER}/{FILE}", layout.LABELS)
        found: list[object] = [files.changed(self.path / name) for name in names]
        if not shipper_alive(str(self.path)):
            found += [(file.name, file.size) for file in segments(self.path)]
        return tuple(found)

    def close(self) -> None:
        """See ``Source``."""
        super().close()
        if "_opened" in self.__dict__:
            self._state.close()
            del self._opened


def _made(row: Sequence[Any], makes: Mapping[int, Callable[[Any], Any]]) -> tuple[Any, ...]:
    """Return a row in which each function of ``makes`` has replaced the value at a place."""
    return tuple([makes[place](value) if place in makes else value for place, value in enumerate(row)])


def _rests(folder: Path) -> bool:
    """Return whether the tables hold everything: the folder has only tables, or its shipper has ended and said so."""
    if segments(folder) or shipper_alive(str(folder)):
        return False
    if not os.path.lexists(folder / layout.STATE_DB):  # a copy
        return True
    try:
        return Status.read(folder).in_tables
    except (OSError, ValueError, msgspec.MsgspecError):
        return False


def _refreshed(state: State, folder: Path, info: RunInfo) -> Indexer:
    """Read all segments and complete the traces that can be judged complete."""
    from autotrace.ship.delivery.outbox import Outbox
    from autotrace.ship.index.indexer import Indexer

    outbox = Outbox(state, info)
    indexer = Indexer(state, folder, info, (outbox,))
    while indexer.round():
        pass
    indexer.look_at_locks()
    indexer.round()
    indexer.hurry()
    while indexer.settle(over=False):
        pass
    outbox.settle(indexer.open_groups, over=False)
    return indexer
