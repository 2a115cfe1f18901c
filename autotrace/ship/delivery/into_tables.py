"""Commit every trajectory to the tables of the run folder, whether or not a backend gets the trajectory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotrace.ship.store.delivery_queue import TABLES
from autotrace.sinks.protocol import Refused, Sink, Unavailable
from autotrace.tables.light_imports import arrow_without_pandas
from autotrace.tables.storage import StorageError
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    from autotrace.tables.writer import TableWriter

_log = logging.getLogger("autotrace.ship")

GATHER = 2.0
"""Wait so many seconds to gather trajectories: each commit writes several files."""


class TablesSink(Sink):
    """Write the tables."""

    name = TABLES
    needs_calls = False
    """See ``Sink``."""

    def __init__(self, tables: TableWriter) -> None:
        self.sent = 0
        self._tables = tables

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Commit ``trajectories``."""
        self._commit(self._tables.write, trajectories)

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Commit the facts of ``trajectories``."""
        self._commit(self._tables.write_facts, trajectories)

    def _commit(self, write: Callable[[Sequence[Trajectory]], int], trajectories: Sequence[Trajectory]) -> None:
        with _as_sinks_do():
            self.sent += write(trajectories)
            self._tables.compact()

    def logged(self, step: int, numbers: Mapping[str, Mapping[str, float]]) -> None:
        """Replace the stored numbers of a step: ``metrics`` as the trainer logged the metrics, ``token_facts``."""
        with _as_sinks_do():
            self._tables.write_metrics(step, numbers)

    def close(self) -> None:
        """Merge small files."""
        try:
            self._tables.finish()
        except StorageError as error:
            _log.warning("small files were not merged: %s", error)


@contextmanager
def _as_sinks_do() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise (Refused if error.refused else Unavailable)(str(error)) from error


def open_tables(run_folder: Path, run_id: str) -> TablesSink:
    """Open the tables of a run for its shipper."""
    arrow_without_pandas("numpy")  # half of pyarrow's own start
    from autotrace.tables.writer import TableWriter

    return TablesSink(TableWriter(run_folder, run_id))
