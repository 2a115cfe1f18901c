"""The tables of the run folder as a destination: what goes to backends, and all that does not, is committed there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotrace.ship.store.delivery_queue import TABLES
from autotrace.sinks.protocol import Refused, Sink, Unavailable
from autotrace.tables.lean import arrow_without_pandas
from autotrace.tables.place import PlaceError
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    from autotrace.tables.writer import Tables

_log = logging.getLogger("autotrace.ship")

GATHER = 2.0
"""Seconds for which a few trajectories wait for others: each commit is some files."""
_BATCH = "batch"
UNDER_WAY = 4
"""The last commits that may not be acknowledged yet, at most: two parcels may be on their way."""


class TablesSink(Sink):
    """See ``Sink`` and ``Reporter``: it is both."""

    name = TABLES
    needs_calls = False
    """See ``Sink``."""

    def __init__(self, tables: Tables, memory: MutableMapping[str, str]) -> None:
        self.sent = 0
        self._tables = tables
        self._memory = memory

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Commit ``trajectories``."""
        self._commit(self._tables.write, trajectories)

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Commit the facts of ``trajectories``."""
        self._commit(self._tables.write_facts, trajectories)

    def _commit(self, write: Callable[[Sequence[Trajectory]], int], trajectories: Sequence[Trajectory]) -> None:
        with _as_sinks_do():
            batch = self._tables.batch
            self._memory[_BATCH] = str(batch)
            self._tables.acknowledge(max(0, batch - UNDER_WAY))
            self.sent += write(trajectories)
            self._tables.compact()

    def logged(self, step: int, numbers: Mapping[str, Mapping[str, float]]) -> None:
        """See ``Reporter``."""
        with _as_sinks_do():
            self._tables.write_metrics(step, numbers)

    def report(self, step: int, metrics: Mapping[str, float], page: str) -> None:
        """See ``Reporter``; what it says follows from the tables."""

    def close(self) -> None:
        """Make few files of many."""
        try:
            self._tables.finish()
        except PlaceError as error:
            _log.warning("small files were not merged: %s", error)


@contextmanager
def _as_sinks_do() -> Iterator[None]:
    try:
        yield
    except PlaceError as error:
        raise (Refused if error.refused else Unavailable)(str(error)) from error


def open_tables(run_folder: Path, run_id: str, memory: MutableMapping[str, str]) -> TablesSink:
    """The tables of a run, for its shipper."""
    arrow_without_pandas("numpy")  # half of pyarrow's own start
    from autotrace.tables.writer import Tables

    acknowledged = max(0, int(memory.get(_BATCH, 0)) - UNDER_WAY)
    return TablesSink(Tables(run_folder, run_id, acknowledged), memory)
