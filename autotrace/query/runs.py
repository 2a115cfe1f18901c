"""``autotrace.open``: the runs of a folder, for notebooks and scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import msgspec

from autotrace.query.errors import missing
from autotrace.query.source import Source, Trajectories, known, need_arrow
from autotrace.run import layout
from autotrace.run.info import RunInfo, find_runs, not_readable
from autotrace.tables.rollout import ROLES

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Tables:
    """What one run and several have in common. Everything is read when it is asked for: of a run that goes on, what
    there is by then."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)

    def table(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> pyarrow.Table:
        """A table (``trajectories``, ``turns``, ``spans``, ``facts``, ``tokens`` or ``metrics``; columns:
        ``docs/data.md``) as Arrow.

        From the run's Parquet files where it has some, else from the run folder. Raises ``QueryError``.
        """
        table = known(name, columns)
        need_arrow()
        import pyarrow as pa

        from autotrace.tables import arrow

        empty = arrow.schema(table, columns).empty_table()
        return pa.concat_tables([empty, *(source.read(name, columns, step) for source in self._sources)])

    def to_polars(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> polars.DataFrame:
        """The same as a polars data frame."""
        try:
            import polars
        except ImportError as error:
            raise missing("polars") from error
        frame = polars.from_arrow(self.table(name, step=step, columns=columns))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """The same as a pandas data frame."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise missing("pandas") from error
        frame: pandas.DataFrame = self.table(name, step=step, columns=columns).to_pandas()
        return frame

    def steps(self) -> list[int]:
        """The training steps that there are trajectories of."""
        found: set[int] = set()
        for source in self._sources:
            with contextlib.closing(source.reader()) as reader:
                found |= {row.step for row in reader.rows() if row.step is not None and row.role in ROLES}
        return sorted(found)

    def trajectories(
        self, *, step: int | None = None, status: str | None = None, validate: bool | None = None, texts: bool = True
    ) -> Trajectories:
        """The trajectories with all their calls, lazily: a sequence that reads each one when it is asked for.

        ``texts=False`` leaves token ids undecoded, which takes less time.
        """
        entries = []
        for source in self._sources:
            reader = source.reader()
            rows = reader.rows(step=step, status=status, validate=validate)
            entries += [(reader, row.trace_id) for row in rows if row.role in ROLES]
        return Trajectories(entries, texts)

    def sql(self, query: str) -> pyarrow.Table:
        """The answer to a SELECT over the tables, in DuckDB's SQL. Raises ``QueryError``."""
        from autotrace.query.sql import answer

        return answer(self._sources, query)


class Run(Tables):
    """One run."""

    def __init__(self, source: Source) -> None:
        super().__init__([source])
        self._source = source

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._source.folder

    @property
    def run_id(self) -> str:
        """Its name."""
        return self.info.run_id

    @property
    def info(self) -> RunInfo:
        """How it was started."""
        return self._source.info

    def __repr__(self) -> str:
        return f"<run {self.run_id} in {self.folder.parent}>"


class Runs(Tables, Sequence[Run]):
    """Several runs, oldest first: a sequence of them, and their tables as one."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__([source for run in runs for source in run._sources])
        self._runs = list(runs)

    @property
    def latest(self) -> Run:
        """The newest of them."""
        return self._runs[-1]

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Run | Runs:
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs: {', '.join(run.run_id for run in self._runs[-3:])}>"


def open(path: str | Path = layout.DEFAULT_RUN_DIR) -> Runs:
    """The run in the folder ``path``, or all runs of a folder of runs, oldest first.

    Raises ``FileNotFoundError`` with one sentence where there is none, ``PermissionError`` where it cannot be read.
    """
    return Runs([Run(source) for source in sources(Path(path))])


def sources(folder: Path) -> list[Source]:
    """See ``open``. A run whose ``run.json`` cannot be read is passed over where there are others."""
    runs, _ = find_runs(folder)
    if runs == [folder]:
        return [_source(folder)]
    found, errors = [], []
    for path in runs:
        try:
            found.append(_source(path))
        except (OSError, msgspec.MsgspecError) as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _source(folder: Path) -> Source:
    try:
        return Source(folder)
    except PermissionError:
        raise not_readable(folder / layout.RUN_JSON) from None
