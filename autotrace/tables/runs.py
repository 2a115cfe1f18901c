"""Open the runs of a folder (``autotrace.open``) for notebooks and scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from autotrace.run.info import RunInfo
from autotrace.tables.columns import ID
from autotrace.tables.committed import Committed
from autotrace.tables.conditions import EVERY, condition, equals
from autotrace.tables.errors import Gone, known, missing
from autotrace.tables.reader import Reader
from autotrace.tables.sources import ReadableRun
from autotrace.trajectory.model import Trajectory

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class RunTables:
    """Give a run and several runs the same methods. Each call reads the current data, also of a living run."""

    def __init__(self, places: Sequence[ReadableRun]) -> None:
        self._places = list(places)

    def reader(self) -> Reader:
        """Open a reader of the runs as of now."""
        return Reader([place.open() for place in self._places])

    def table(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> pyarrow.Table:
        """Return a table (``trajectories``, ``turns``, ``spans``, ``facts``, ``tokens`` or ``metrics``; columns:
        ``docs/data.md``) as Arrow. Raises ``QueryError``."""
        with contextlib.closing(self.reader()) as reader:
            return reader.table(name, columns, step)

    def to_polars(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> polars.DataFrame:
        """Return a table as a polars data frame."""
        try:
            import polars
        except ImportError as error:
            raise missing("polars") from error
        return polars.DataFrame(self.table(name, step=step, columns=columns))

    def to_pandas(
        self, name: str = "trajectories", *, step: int | None = None, columns: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """Return a table as a pandas data frame."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise missing("pandas") from error
        frame: pandas.DataFrame = self.table(name, step=step, columns=columns).to_pandas()
        return frame

    def files(self, name: str = "trajectories") -> list[str]:
        """Return the Parquet files of a table that count now, for other tools: a glob also finds files that a
        compaction has replaced. Raises ``OSError``, ``QueryError``."""
        folders = [place.path.absolute() for place in self._places if place.path.is_dir()]
        return [file for folder in folders for file in Committed(folder).files(known(name).name)]

    def steps(self) -> list[int]:
        """Return the training steps that have trajectories."""
        with contextlib.closing(self.reader()) as reader:
            return [step for step in reader.steps() if step is not None]

    def trajectories(
        self,
        *,
        step: int | None = None,
        status: str | None = None,
        validate: bool | None = None,
        where: str | None = None,
        texts: bool = True,
    ) -> Trajectories:
        """Return the trajectories with all calls as a lazy sequence, which reads each trajectory on access.

        ``where``: a condition as for ``--where``. ``texts=False`` leaves token ids undecoded, which takes less time.
        """
        wanted = equals(step=step, status=status, validate=validate) & (condition(where) if where else EVERY)
        reader = self.reader()
        return Trajectories(reader, reader.select(wanted, (*ID, "start_ns")), texts)

    def sql(self, query: str) -> pyarrow.Table:
        """Return the answer to a SELECT over the tables, in DuckDB's SQL. Raises ``QueryError``."""
        with contextlib.closing(self.reader()) as reader:
            return reader.sql(query).arrow()


class Run(RunTables):
    """Read a single run."""

    def __init__(self, place: ReadableRun) -> None:
        super().__init__([place])
        self._place = place

    @property
    def folder(self) -> Path:
        """Return the run folder, or the path of the stored trajectories."""
        return self._place.path

    @property
    def run_id(self) -> str:
        """Return the name of the run."""
        return self.info.run_id

    @property
    def info(self) -> RunInfo:
        """Return how the run was started."""
        return self._place.info

    def __repr__(self) -> str:
        return f"<run {self.run_id} in {self.folder.parent}>"


class Runs(RunTables, Sequence[Run]):
    """Read several runs, oldest first: a sequence of runs whose tables are joined."""

    @property
    def latest(self) -> Run:
        """Return the newest run."""
        return self[-1]

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Run | Runs:
        return Runs(self._places[index]) if isinstance(index, slice) else Run(self._places[index])

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<{len(self)} runs: {', '.join(place.info.run_id for place in self._places[-3:])}>"


class Trajectories(Sequence[Trajectory]):
    """Hold trajectories in the order of their start. Each trajectory is read on access and not kept."""

    def __init__(self, reader: Reader, rows: Sequence[Any], texts: bool) -> None:
        self._reader, self._rows, self._texts = reader, rows, texts

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> Trajectories: ...
    def __getitem__(self, index: int | slice) -> Trajectory | Trajectories:
        """Raises ``Gone`` if only the trajectory's line is left."""
        if isinstance(index, slice):
            return Trajectories(self._reader, self._rows[index], self._texts)
        return self._reader.one(self._rows[index], texts=self._texts)

    def __iter__(self) -> Iterator[Trajectory]:
        """Skip trajectories that have nothing left but the line."""
        for row in self._rows:
            with contextlib.suppress(Gone):
                yield self._reader.one(row, texts=self._texts)

    def __repr__(self) -> str:
        return f"<{len(self)} trajectories, read when asked for>"
