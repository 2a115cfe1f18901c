"""Byte budgets: how much a backend may get per training step and per month. What does not fit stays in the local spool.

Decided per group (the rollouts of one prompt in one step) once it has ended, from what exactly would be sent: a group
is never half delivered, and a budget is exceeded only by rollouts that join a group after it was decided on.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from autotrace.run import files, layout
from autotrace.ship.store.migrations import MONTHS, migrate
from autotrace.ship.store.state import State

_log = logging.getLogger("autotrace.ship")

SECONDS_A_DAY = 86_400
SHORTEST = 600.0
"""Seconds that a run must have taken before it says anything about a day."""
OVER_BUDGET = "over the byte budget; it stays in the run folder, autotrace ship --all delivers it"
"""Why a trajectory counts as left out, in the state."""


class MonthBook:
    """What all runs of a folder sent in a month: ``sent.db`` beside the run folders, begun by the first run that has a
    budget (``begin``). A folder that cannot be written leaves each run with its own numbers."""

    def __init__(self, run_folder: str | Path, run_id: str) -> None:
        self._path = Path(run_folder).absolute().parent / layout.SENT_DB
        self._run = run_id

    def begin(self) -> None:
        """From now on every run in the folder is counted."""
        try:
            with self._open():
                pass
        except (OSError, sqlite3.Error) as error:
            _log.warning("%s cannot be written, so --month-budget counts this run only: %s", self._path, error)

    def add(self, backend: str, size: int) -> None:
        """``backend`` took ``size`` more bytes of this run."""
        sql = (
            "INSERT INTO sent VALUES (?, ?, ?, ?) "
            "ON CONFLICT (run, backend, month) DO UPDATE SET bytes = bytes + excluded.bytes"
        )
        try:
            if self._path.exists():
                with self._open() as db:
                    db.execute(sql, (self._run, backend, month(), size))
        except (OSError, sqlite3.Error) as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def total(self, backend: str, *, others: bool = False) -> int:
        """Bytes sent to ``backend`` this month by all runs; ``others``: by all but this one."""
        sql = "SELECT sum(bytes) FROM sent WHERE backend = ? AND month = ? AND run != ?"
        try:
            if not self._path.exists():
                return 0
            with self._open() as db:
                return int(db.execute(sql, (backend, month(), self._run if others else "")).fetchone()[0] or 0)
        except (OSError, sqlite3.Error):
            return 0

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        files.ensure(self._path)
        db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
        try:
            migrate(db, MONTHS)
            yield db
        finally:
            db.close()


class Admission(Protocol):
    """Decides which trajectories a backend may get."""

    @property
    def limited(self) -> bool:
        """Whether there is anything to decide."""

    def admits(self, trace_id: str, group: str, step: int | None, sizes: Callable[[], Mapping[str, int]]) -> bool:
        """Whether a trajectory of ``group`` may be sent. ``sizes``: trace id -> bytes, of the whole group."""


class Ledger:
    """The budgets: what one backend may get of one run, and got. Belongs to the thread of ``state``."""

    def __init__(
        self, state: State, backend: str, book: MonthBook, step_budget: int | None, month_budget: int | None
    ) -> None:
        self._state = state
        self._backend = backend
        self._book = book
        self._step_budget = step_budget
        self._month_budget = month_budget
        if month_budget is not None:
            book.begin()

    @property
    def limited(self) -> bool:
        """Whether this backend has a budget."""
        return self._step_budget is not None or self._month_budget is not None

    def admits(self, trace_id: str, group: str, step: int | None, sizes: Callable[[], Mapping[str, int]]) -> bool:
        """Whether a trajectory of ``group`` may be sent. The first of a group decides for all of it; ``sizes``: trace
        id -> bytes it would take. What is sent again is not counted again."""
        decided = decided_of(self._state, self._backend, group)
        if trace_id in decided:
            return decided[trace_id] is not None
        undecided = {other: size for other, size in sizes().items() if other not in decided}
        admitted = (
            any(size is not None for size in decided.values()) if decided else self._fits(step, sum(undecided.values()))
        )
        self._state.db.executemany(
            "INSERT OR REPLACE INTO admitted VALUES (?, ?, ?, ?, ?, ?)",
            ((self._backend, id, group, step, month(), size if admitted else None) for id, size in undecided.items()),
        )
        return admitted

    def _fits(self, step: int | None, size: int) -> bool:
        if self._step_budget is not None and self._sum("step IS ?", step) + size > self._step_budget:
            return False
        if self._month_budget is None:
            return True
        others = self._book.total(self._backend, others=True)
        return others + self._sum("month = ?", month()) + size <= self._month_budget

    def _sum(self, where: str, value: int | str | None) -> int:
        sql = f"SELECT sum(bytes) FROM admitted WHERE backend = ? AND {where}"
        return self._state.count(sql, (self._backend, value))

    def sent(self, size: int) -> None:
        """The backend took ``size`` more bytes."""
        if size:
            self._state.put_meta(key := sent_key(self._backend), str(int(self._state.meta(key) or 0) + size))
            self._book.add(self._backend, size)


def decided_of(state: State, backend: str, group: str) -> dict[str, int | None]:
    """Of the trajectories of ``group`` that were decided on: bytes, or None where they may not be sent."""
    sql = "SELECT trace_id, bytes FROM admitted WHERE backend = ? AND group_key = ?"
    return dict(state.db.execute(sql, (backend, group)).fetchall())


def sent_key(backend: str) -> str:
    """Where the state holds how many bytes ``backend`` took of this run."""
    return f"backend:{backend}:sent"


def month() -> str:
    """The calendar month it is, UTC."""
    return f"{datetime.now(timezone.utc):%Y-%m}"


def forecast(sent: int, seconds: float) -> float:
    """Gigabytes a day if it goes on as in the last ``seconds``; 0 where those are too few to say."""
    return sent / seconds * SECONDS_A_DAY / 1e9 if seconds >= SHORTEST else 0.0
