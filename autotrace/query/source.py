"""The tables of one run: its Parquet files where it has some, else made of the run folder, also while it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, overload

from autotrace.insight.settings import Settings
from autotrace.query import summaries
from autotrace.query.errors import missing, unknown
from autotrace.run.info import RunInfo
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.tables import metrics
from autotrace.tables.columns import Table
from autotrace.tables.metrics import METRICS
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import TABLES
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int, int], None]
"""Called with how many trajectories were read, and of how many."""
AT_ONCE = 100
"""Trajectories in memory."""


class Source:
    """One run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = RunInfo.read(folder)

    def reader(self) -> RunReader:
        """The run as it is now."""
        return RunReader.open(self.folder)

    def read(
        self, name: str, columns: Sequence[str] | None = None, step: int | None = None, progress: Progress | None = None
    ) -> pa.Table:
        """The table ``name``, of one step if ``step`` is given. Raises ``QueryError``."""
        table = known(name, columns)
        need_arrow()
        with contextlib.closing(self.reader()) as reader:
            return _made(reader, table, columns, step, progress)


def known(name: str, columns: Sequence[str] | None = None) -> Table:
    """The table ``name``, which has ``columns``. Raises ``QueryError``."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    table = TABLES[name]
    for column in columns or ():
        if table.column(column) is None:
            raise unknown(f"column of {name} called", column, [each.name for each in table.columns])
    return table


def need_arrow() -> None:
    """Raise ``ModuleNotFoundError`` with the remedy where pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise missing("pyarrow", "parquet")


def _made(
    reader: RunReader, table: Table, columns: Sequence[str] | None, step: int | None, progress: Progress | None
) -> pa.Table:
    """The table, of the run folder."""
    import pyarrow as pa

    from autotrace.tables import arrow

    names = [column.name for column in table.columns] if columns is None else list(columns)
    if table is METRICS:
        return arrow.from_rows(arrow.chosen(table, names), metrics.rows(reader.info.run_id, reader.step_facts(step)))
    rows = reader.rows(step=step)
    short = summaries.columns(table, names)
    if short is not None:
        settings = Settings.of(reader.binds()).encode()
        asked = summaries.rows(table, [summaries.Summary(reader.info.run_id, row, settings) for row in rows])
        return arrow.from_rows(short, asked)
    texts = any(column.text for column in arrow.chosen(table, names))
    parts = [arrow.schema(table, names).empty_table()]
    chunk: list[Rollout] = []
    for count, row in enumerate(rows, 1):
        with contextlib.suppress(Gone):
            chunk.append(Rollout(reader.load(row.trace_id, texts=texts)))
        if len(chunk) >= AT_ONCE or count == len(rows):
            parts.append(arrow.table_of(table, chunk, names))
            chunk = []
        if progress is not None:
            progress(count, len(rows))
    return pa.concat_tables(parts)


class Trajectories(Sequence[Trajectory]):
    """Trajectories in order of their start, run by run. Each is read when it is asked for, and not kept."""

    def __init__(self, entries: Sequence[tuple[RunReader, str]], texts: bool) -> None:
        self._entries, self._texts = list(entries), texts

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> Trajectories: ...
    def __getitem__(self, index: int | slice) -> Trajectory | Trajectories:
        """Raises ``Gone`` where its segments were removed from the run folder."""
        if isinstance(index, slice):
            return Trajectories(self._entries[index], self._texts)
        reader, trace_id = self._entries[index]
        return reader.load(trace_id, texts=self._texts)

    def __iter__(self) -> Iterator[Trajectory]:
        """Those whose segments were removed from the run folder are passed over."""
        for reader, trace_id in self._entries:
            with contextlib.suppress(Gone):
                yield reader.load(trace_id, texts=self._texts)

    def __repr__(self) -> str:
        return f"<{len(self)} trajectories, read when asked for>"
