"""Stored trajectories, read as a run folder is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotrace.query.errors import QueryError
from autotrace.query.stored import lines, tables
from autotrace.query.stored.place import Place
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.run.status import Status
from autotrace.ship.index import step_facts
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.ship.store.state import State
from autotrace.ship.store.where import equals
from autotrace.trajectory.model import Trajectory

STATE = "stored"
"""In place of a run's state."""


def places(path: Path) -> Sequence[Place]:
    """The runs that are stored at ``path``: a file of lines, or a folder of tables or with such a file. None of a run
    folder or of a folder of runs. Raises ``QueryError`` for a file of something else."""
    if (path / layout.RUN_JSON).exists():
        return []
    return [*lines.places(path), *tables.places(path)]


class StoredReader(RunReader):
    """See ``RunReader``: nothing is being written, and tokens have the texts that are stored with them."""

    def __init__(self, place: Place) -> None:
        """Reads the line about each. Raises ``QueryError``, and ``ModuleNotFoundError`` with the remedy."""
        state = State(":memory:")
        try:
            with state:
                state.put_rows(place.rows())
                for step, of_step in place.step_facts().items():
                    for name, numbers in of_step.items():
                        step_facts.put(state, step, name, numbers)
        except (OverflowError, sqlite3.Error) as error:  # numbers that no clock and no counter has
            raise QueryError(f"{place.path} cannot be read: a value is too large ({error})") from None
        self._place = place
        self._count, start = state.db.execute("SELECT count(*), min(start_ns) FROM traces").fetchone()
        created = datetime.fromtimestamp((start or 0) / 1e9, timezone.utc).isoformat()
        info = RunInfo(place.run_id, created, [], "", 0, [])
        super().__init__(place.path, info, state, None)

    def load(self, prefix: str, *, texts: bool = True) -> Trajectory:
        """See ``RunReader.load``."""
        (row,) = self.select(equals(trace_id=self.resolve(prefix)))
        trajectory = self._place.load(row)
        if trajectory is None:
            raise Gone(f"trace {row.trace_id} is gone from {self._place.path}")
        trajectory.profile = row.profile
        return trajectory

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """There is no tokenizer here."""
        return None

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """See ``RunReader.binds``."""
        return []

    def status(self) -> Status:
        """See ``RunReader.status``."""
        return Status(STATE, self.info.run_id, trajectories=self._count)


def one(path: Path) -> StoredReader | None:
    """The newest run that is stored at ``path``; None where it is no such place. Raises as above."""
    found = places(path)
    if not found:
        return None
    try:
        return StoredReader(found[-1])
    except OSError as error:
        raise QueryError(f"{path} cannot be read: {error.strerror}") from error
