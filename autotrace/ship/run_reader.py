"""What the command line reads of a run: its traces as lines, one of them whole.

Works while the run goes on, after it, and where no shipper ever ran.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import layout
from autotrace.run.drain import shipper_alive
from autotrace.run.info import RunInfo, not_readable
from autotrace.run.status import Status
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.index import step_facts
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.report import status_of
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.migrations import NewerDatabase
from autotrace.ship.store.row import Row
from autotrace.ship.store.state import State
from autotrace.ship.store.where import EVERY, Condition, equals
from autotrace.spool.reader import segments, unreadable
from autotrace.trajectory.model import Trajectory

_FILTERS = ("step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "role", "status")


SORTS = {"start": "start_ns", "reward": "reward", "duration": "(end_ns - start_ns)", "turns": "turns"}
"""Order -> SQL."""


_AT_ONCE = 500
"""Lines asked for in one statement."""


class Gone(KeyError):
    """A trace whose segments were removed, to make room (``--spool-limit``) or by hand."""


class RunReader:
    """The traces of one run. Use ``open``; delivers nothing."""

    def __init__(
        self, run_folder: Path, info: RunInfo, state: State, indexer: Indexer | None, problem: str = ""
    ) -> None:
        self.run_folder = run_folder
        self.info = info
        self._state = state
        self._indexer = indexer
        self._problem = problem
        self._decoder: Decoder | None = None

    @classmethod
    def open(cls, run_folder: str | Path, before: RunReader | None = None) -> RunReader:
        """A reader of ``run_folder``, which may be a stranger's: nothing is written there, and no link in it is
        followed. ``before``: an earlier reader of the run, whose tokenizer is taken over. Raises what ``RunInfo.read``
        raises, and ``PermissionError`` with one sentence.

        With a shipper at work, its state is read. What the state lacks without one is read into memory.
        """
        folder, info = _looked_at(run_folder)
        problem, indexer = "", None
        try:
            state = State.read_only(folder)
            if not shipper_alive(str(folder)) and not _everything_read(state, folder):
                state = state.copy()
                indexer = _refreshed(state, folder, info)
        except sqlite3.Error as error:
            if isinstance(error, NewerDatabase):
                problem = f"what was delivered is not known here, {layout.STATE_DB} cannot be used: {error}"
            state = State(":memory:")
            indexer = _refreshed(state, folder, info)
        reader = cls(folder, info, state, indexer, problem)
        if before is not None:
            reader._decoder = before._decoder
        return reader

    def columns(self, names: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """These columns of the state (``store.row.COLUMNS``) of all trajectories, by start, some thousands at a time;
        of all traces where none is a trajectory."""
        some = self._state.count("SELECT EXISTS (SELECT 1 FROM traces WHERE role = 'trajectory')")
        return self._state.columns(names, "role IN ('', 'trajectory')" if some else "1")

    def rows(self, **filters: Any) -> list[Row]:
        """Lines of the traces, by start. ``filters``: any of step, sample_index, rollout_n, validate, uid, data_source,
        experiment_name, role, status. Raises ``TypeError`` for another name."""
        unknown = sorted(set(filters) - set(_FILTERS))
        if unknown:
            raise TypeError(f"cannot filter by {unknown[0]!r}; choose from {', '.join(_FILTERS)}")
        return self.select(equals(**filters))

    def select(
        self,
        condition: Condition = EVERY,
        *,
        sort: str = "start",
        descending: bool = False,
        limit: int | None = None,
        without: Collection[str] = (),
    ) -> list[Row]:
        """Lines of the traces that satisfy ``condition``, at most ``limit``, by a key of ``SORTS``; what has no value
        comes last. ``without``: columns of JSON that the caller does not read."""
        key, direction = SORTS[sort], "DESC" if descending else "ASC"
        order = f"{key} IS NULL, {key} {direction}, trace_id {direction}"
        return self._state.select(condition, order, limit, without)

    def count(self, condition: Condition = EVERY) -> int:
        """How many traces satisfy ``condition``."""
        return self._state.count(f"SELECT count(*) FROM traces WHERE {condition.sql}", condition.values)

    def ids_by_step(self, roles: Collection[str]) -> dict[int | None, list[str]]:
        """The traces whose root has one of ``roles`` (or was not read yet), by step and start."""
        by_step: dict[int | None, list[str]] = {}
        marks = ", ".join("?" * len(roles))
        sql = f"SELECT trace_id, step FROM traces WHERE role IN ('', {marks}) ORDER BY start_ns"
        for trace_id, step in self._state.db.execute(sql, tuple(roles)):
            by_step.setdefault(step, []).append(trace_id)
        return by_step

    def rows_of(self, ids: Sequence[str]) -> list[Row]:
        """The lines of the traces ``ids``, by start."""
        rows: list[Row] = []
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            rows += self._state.rows(f"trace_id IN ({', '.join('?' * len(some))})", some)
        return sorted(rows, key=lambda row: (row.start_ns or 0, row.trace_id))

    @property
    def living(self) -> bool:
        """The run goes on, as far as its shipper says: also where no backend takes anything from it."""
        try:
            state = Status.read(self.run_folder).state
        except (OSError, ValueError, msgspec.MsgspecError):
            return False
        return state == "running" or (state == "blocked" and shipper_alive(str(self.run_folder)) is True)

    def steps(self) -> tuple[int, int] | None:
        """The first and the last training step of the run; None: its traces have none."""
        first, last = self._state.db.execute("SELECT min(step), max(step) FROM traces").fetchone()
        return None if first is None else (first, last)

    def deliveries(self, trace_id: str) -> dict[str, tuple[int | None, str | None, str | None]]:
        """Backend -> (acknowledged at, page, why it was rejected) of one trace."""
        rows = self._state.db.execute("SELECT * FROM deliveries WHERE trace_id = ?", (trace_id,))
        return {
            row["backend"]: (row["delivered_ns"], row["page"], row["rejected"])
            for row in rows
            if row["backend"] != TABLES
        }

    def pages(self) -> dict[str, str]:
        """Trace id -> URL of its page in a backend, for those that have one."""
        return dict(self._state.db.execute("SELECT trace_id, page FROM deliveries WHERE page IS NOT NULL").fetchall())

    def page(self, trace_id: str) -> str | None:
        """URL of the page of one trace in a backend."""
        row = self._state.db.execute(
            "SELECT page FROM deliveries WHERE trace_id = ? AND page IS NOT NULL", (trace_id,)
        ).fetchone()
        return None if row is None else str(row[0])

    def backends(self) -> dict[str, dict[str, str]]:
        """Backend -> what it stored about itself: ``place`` (where the traces are), ``open_with`` (a command)."""
        return {name: self._state.metas(f"backend:{name}:") for name in self.info.backends}

    def step_facts(self, step: int | None = None) -> dict[int, dict[str, dict[str, float]]]:
        """Step -> name -> numbers: ``metrics`` as the trainer logged them, ``token_facts``; of ``step`` if it is
        given."""
        return step_facts.read(self._state, step)

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything reported about the run, in order: ``config``, ``dataset``, ``mlflow``, ``tokenizer``, ..."""
        if self._indexer is not None:
            return self._indexer.binds
        return binds_of(self._state)

    def resolve(self, prefix: str) -> str:
        """The whole id of the trace that begins with ``prefix`` (``tr-`` in front is MLflow's).

        Raises ``KeyError`` with a sentence when there is none or more than one.
        """
        wanted = prefix.removeprefix("tr-").lower()
        # a range of the primary key; ids are hexadecimal, so nothing that begins so comes after wanted + "g"
        range_of = "trace_id >= ? AND trace_id < ? ORDER BY trace_id LIMIT 4"
        matches = self._state.rows(range_of, (wanted, wanted + "g")) if wanted else []
        if not matches:
            raise KeyError(f"no trace of this run begins with {prefix!r}; autotrace ls shows them")
        if len(matches) > 1:
            raise KeyError(
                f"{prefix!r} is the beginning of several traces: {', '.join(row.trace_id for row in matches)}"
            )
        return matches[0].trace_id

    def load(self, prefix: str, *, texts: bool = True) -> Trajectory:
        """The trace whose id begins with ``prefix``, open calls included, decoded if ``texts``.

        Raises ``KeyError`` where there is none, ``Gone`` where the run folder has only its line left.
        """
        trace_id = self.resolve(prefix)
        loader = self._indexer.loader if self._indexer is not None else Loader(self._state, self.run_folder, self.info)
        trajectory = loader.load(trace_id)
        if trajectory is None:
            raise Gone(f"the segments of trace {trace_id} are gone from the run folder")
        if texts:
            self._texts().add_texts(trajectory)
        return trajectory

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """The text of token ids of the target ``key``, not redacted; None where it cannot be made."""
        return self._texts().decode(ids, key)

    def _texts(self) -> Decoder:
        if self._decoder is None:
            self._decoder = Decoder(self.run_folder)
        for name, value in self.binds():
            if name == "tokenizer":
                self._decoder.bind(value)
        return self._decoder

    def status(self) -> Status:
        """The status that the shipper wrote last; where none ever ran, one computed from the segments now."""
        try:
            status = Status.read(self.run_folder)
        except (OSError, ValueError, msgspec.MsgspecError):
            status = status_of(self._state, self.info, self.run_folder, "running")
        if self._problem:
            status.notes.append(self._problem)
        return status

    def close(self) -> None:
        """Close the state."""
        self._state.close()


def _everything_read(state: State, folder: Path) -> bool:
    """Whether the segments hold nothing that the state lacks."""
    read = {name: row["offset"] for name, row in state.segments().items()}
    return all(file.size <= read.get(file.name, -1) for file in segments(folder))


def _looked_at(run_folder: str | Path) -> tuple[Path, RunInfo]:
    """Raises ``PermissionError`` where something in it may not be read: what is left would look like the whole."""
    folder = Path(run_folder)
    info = RunInfo.read(folder)
    closed = unreadable(folder)
    if closed is not None:
        raise not_readable(closed)
    return folder, info


def _refreshed(state: State, folder: Path, info: RunInfo) -> Indexer:
    """Read everything there is and complete the traces that can be judged complete."""
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
