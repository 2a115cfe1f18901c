"""Read the committed tables of a run: the files that count at a moment."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from autotrace.config import ids
from autotrace.run import files, layout
from autotrace.run.info import MOST, RunInfo
from autotrace.run.status import Status
from autotrace.tables import metrics
from autotrace.tables.commits import FILE, FOLDER, Added, Snapshot, asked_again, snapshot
from autotrace.tables.connection import connect, first_line, read
from autotrace.tables.database import checked_id, of_file
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.metrics import METRICS, OfStep
from autotrace.tables.rebuild import BELOW, Row, rebuilt, rows_of
from autotrace.tables.rollout import ROLES
from autotrace.tables.schema import OF_TRAJECTORIES, TABLES
from autotrace.tables.sources import STORED, Lines, ReadableRun, Source, Steps, stored_info
from autotrace.tables.storage import RemoteStorage, failed
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.model import Trajectory, flattened

if TYPE_CHECKING:
    import duckdb

_NAME = re.compile(r"\d{6,}(\.c)?\.parquet")


class Committed(Source):
    """Read the tables in a run folder, or in a copy that holds only the tables. The folder may be a stranger's: no link
    inside is followed. Raises ``OSError``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / FOLDER
        self._snapshot, self._files = asked_again(self._look)

    @cached_property
    def info(self) -> RunInfo:  # type: ignore[override]  # asked for only where there is no run folder
        """See ``Source``: as much as the tables contain."""
        run_id, start, _ = self._run
        return stored_info(run_id or ids.run_id(self.path.name, "run"), start)

    @cached_property
    def _run(self) -> tuple[str, int, int]:
        """Return the run id, the start in ns and the number of trajectories."""
        paths = self.files(TRAJECTORIES.name)
        count = f"count(DISTINCT trace_id) FILTER (role IN {ROLES})"
        named = checked_id("run_id", "any_value(run_id)")
        sql = f"SELECT {named}, min(start_ns), {count} FROM {read(paths)}" if paths else "SELECT '', 0, 0"
        ((run_id, start, count),) = self.asked(sql)
        return run_id, start, count

    def _look(self) -> tuple[Snapshot, dict[str, dict[str, Added]]]:
        """Return the current snapshot, and the existing files of each table by path."""
        found = snapshot(self._lines())
        return found, {table: self._found(found, table) for table in TABLES}

    def _lines(self) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return files.read(self.path, FOLDER, FILE)
        return b""

    def look_again(self) -> bool:
        """See ``Source``: the end of a run merges files."""
        before = self._files
        self._snapshot, self._files = asked_again(self._look)
        if self._files == before:
            return False
        Committed.close(self)
        return True

    @property
    def has_commits(self) -> bool:
        """Return whether the folder has a commit."""
        return bool(self._snapshot.commits)

    def superseded(self) -> Mapping[str, int]:
        """See ``Source``."""
        return self._snapshot.superseded

    def files(self, table: str) -> Sequence[str]:
        """See ``Source``; oldest first."""
        return [*self._files[table]]

    def late_facts(self) -> Sequence[str]:
        """See ``Source``: facts that were committed together with a trajectory are in the row of the trajectory."""
        at_first = {commit.files["facts"].name for commit in self._snapshot.commits
                    if {TRAJECTORIES.name, "facts"} <= commit.files.keys()}  # fmt: skip
        return [path for path, file in self._files["facts"].items() if file.name not in at_first]

    def size(self) -> int:
        """See ``Source``."""
        return sum(file.bytes for by_path in self._files.values() for file in by_path.values())

    def _found(self, found: Snapshot, table: str) -> dict[str, Added]:
        named = list(found.files.get(table, {}).values())
        if not all(_NAME.fullmatch(file.name) for file in named):
            raise QueryError(f"{self.folder / FILE} names files that are none of autotrace's")
        return self._there(table, named) if named else {}

    def _there(self, table: str, named: list[Added]) -> dict[str, Added]:
        """Return the named files that exist, by path, with the size on disk."""
        folder, there = f"{self.folder}/{table}", dict[str, Added]()
        for file in [] if os.path.islink(folder) else named:
            info = os.lstat(path := f"{folder}/{file.name}")
            if files.is_ours(info):
                there[path] = file if info.st_size == file.bytes else replace(file, bytes=info.st_size)
        return there

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines | None:
        """See ``Source``: every row is in a file."""
        return iter(())

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """See ``Source``."""
        found = self.stored([trace_id])
        if trace_id not in found:
            raise Gone(f"trace {trace_id} is gone from {self.path}")
        return found[trace_id]

    def stored(self, trace_ids: Sequence[str]) -> Mapping[str, Trajectory]:
        """See ``Source``. Raises ``Gone``."""
        try:
            return self._load(trace_ids)
        except Gone:
            try:
                changed = self.look_again()
            except (OSError, QueryError) as error:
                raise Gone(str(error)) from error
            if not changed:
                raise
            return self._load(trace_ids)

    def _load(self, trace_ids: Sequence[str]) -> dict[str, Trajectory]:
        paths = self.files(TRAJECTORIES.name)
        if not paths or not trace_ids:
            return {}
        import duckdb

        of = "trace_id IN (SELECT unnest($ids))"
        try:
            found = self._database.execute(
                f"SELECT trace_id, max(version), step FROM {read(paths)} WHERE {of} GROUP BY ALL", {"ids": trace_ids}
            ).fetchall()
            versions = {trace_id: version for trace_id, version, _ in sorted(found, key=lambda row: row[1])}
            steps = [step for _, _, step in found]
            where = of if not steps or None in steps else f"{of} AND step BETWEEN {min(steps)} AND {max(steps)}"
            names = [name for name in (TRAJECTORIES.name, *BELOW) if self.files(name)]
            tables = {name: self._rows(name, where, versions) for name in names}
        except (duckdb.Error, OSError) as error:
            raise Gone(f"{self.folder} cannot be read: {first_line(error)}") from error
        loaded = {}
        try:
            for trajectory in rebuilt(tables):
                flattened(trajectory.spans)
                if trajectory.version == versions[trajectory.trace_id]:
                    loaded[trajectory.trace_id] = trajectory
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise Gone(f"{self.folder} was not written by autotrace, or is damaged: {error}") from error
        return loaded

    def _rows(self, name: str, where: str, trace_ids: Collection[str]) -> Iterable[Row]:
        """Return the rows of a table for some trajectories: rows of the last version, and all rows of ``facts``."""
        paths, columns = self.files(name), OF_TRAJECTORIES[name].columns
        described = self._database.execute(f"DESCRIBE SELECT * FROM {read(paths)}").fetchall()
        present = {row[0] for row in described}  # tables of an earlier release lack some columns
        listed = ", ".join(of_file(column, present) for column in columns)
        last = "" if name == "facts" else " QUALIFY version = max(version) OVER (PARTITION BY trace_id)"
        sql = f"SELECT {listed} FROM {read(paths)} WHERE {where}{last}"
        found = self._database.sql(sql, params={"ids": list(trace_ids)})
        if len(trace_ids) > 1:
            return rows_of(found.to_arrow_table())
        rows = found.fetchall()  # importing pyarrow takes longer than reading a single trajectory
        if name in ("turns", "tokens") and any(type(value) is list and None in value for row in rows for value in row):
            raise Gone(f"{self.folder} was not written by autotrace: a list of numbers in {name} lacks one")
        return [dict(zip((column.name for column in columns), row, strict=True)) for row in rows]

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """See ``Source``."""
        paths = self.files(METRICS.name)
        if not paths:
            return {}
        names = ("step", "source", "name", "value")
        of = "" if step is None else f" WHERE step = {int(step)}"
        rows = self.asked(
            f"SELECT {', '.join(names)} FROM {read(paths)}{of} QUALIFY version = max(version) OVER (PARTITION BY step)"
        )
        return metrics.steps(dict(zip(names, row, strict=True)) for row in rows)

    def asked(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the answer to ``sql``. Raises ``QueryError``."""
        import duckdb

        try:
            return self._database.execute(sql).fetchall()
        except (duckdb.Error, MemoryError) as error:
            raise QueryError(f"{self.folder} cannot be read: {first_line(error)}") from error

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        return connect([file for name in TABLES for file in self.files(name)], self.size(), threads="1")

    def status(self) -> Status:
        """See ``Source``."""
        return Status(STORED, self.info.run_id, trajectories=self._run[2])

    def fingerprint(self) -> object:
        """See ``Source``."""
        return files.changed(self.folder / FILE)

    def close(self) -> None:
        """See ``Source``."""
        if "_database" in self.__dict__:
            self._database.close()
            del self._database


class Remote(Committed):
    """Read the tables of a run at a URL: DuckDB fetches the parts of files that a question needs. Raises
    ``QueryError``."""

    def __init__(self, url: str, filesystem: Any, info: RunInfo | None) -> None:
        self._url, self._filesystem = url, filesystem
        super().__init__(Path(url))
        if info is not None:
            self.info = info

    def _lines(self) -> bytes:
        with _reading(self._url):
            self._sizes = _sizes(self._filesystem, f"{self._url}/{FOLDER}")
            if self._sizes.get(FILE, 0) > files.MOST:
                raise OSError(f"{FOLDER}/{FILE} is too large to be one of a run")
            return bytes(self._filesystem.cat_file(f"{self._url}/{FOLDER}/{FILE}"))

    def fingerprint(self) -> object:
        """See ``Source``."""
        with _reading(self._url):
            return self._filesystem.ukey(f"{self._url}/{FOLDER}/{FILE}")

    def _there(self, table: str, named: list[Added]) -> dict[str, Added]:
        """Return the named files with sizes from the bucket's own list: the lines may state any size."""
        folder, there = f"{self._url}/{FOLDER}/{table}", dict[str, Added]()
        for file in named:
            if (size := self._sizes.get(f"{table}/{file.name}")) is None:
                raise FileNotFoundError(errno.ENOENT, "is not there", f"{folder}/{file.name}")
            there[f"{folder}/{file.name}"] = replace(file, bytes=size)
        return there


def _sizes(filesystem: Any, at: str) -> dict[str, int]:
    """Return the files below ``at``, by path, with the sizes in bytes."""
    base = filesystem._strip_protocol(at).rstrip("/")
    found = filesystem.find(base, detail=True)
    return {path.removeprefix(base).lstrip("/"): int(info.get("size") or 0) for path, info in found.items()}


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise QueryError(str(failed(url, error, "read"))) from error


def remote_runs(url: str, problems: list[Exception]) -> list[ReadableRun]:
    """Return the runs whose tables are at or below ``url``, in the order of names. A run that cannot be read is skipped
    if another run can be read; ``problems`` gets a sentence about the skipped run. Raises ``FileNotFoundError`` if
    there are no runs, and ``QueryError``."""
    at, runs, mark = RemoteStorage(url.rstrip("/")), list[ReadableRun](), f"/{FOLDER}/{FILE}"
    with _reading(url):
        filesystem, base = at.opened
        sizes = _sizes(filesystem, base)
        found = [f"{base}/{path}".removesuffix(mark) for path in sizes if f"/{path}".endswith(mark)]
        told = [path for path in found if sizes.get(f"{path}/{layout.RUN_JSON}"[len(base) + 1 :], MOST + 1) <= MOST]
        infos = filesystem.cat([f"{path}/{layout.RUN_JSON}" for path in told], on_error="omit") if told else {}
    for path in found:
        info = None
        with contextlib.suppress(KeyError, msgspec.MsgspecError):
            info = msgspec.json.decode(infos[f"{path}/{layout.RUN_JSON}"], type=RunInfo)
        opened = partial(Remote, at.root + path.removeprefix(base), filesystem, info)
        try:
            runs.append(ReadableRun(Path(opened.args[0]), info or opened().info, opened))
        except (OSError, QueryError) as error:
            problems.append(error)
    if found and not runs:
        raise problems[0]
    if not runs:
        raise FileNotFoundError(f"{url} holds no autotrace run (no {mark[1:]} in it or below it)")
    return sorted(runs, key=lambda run: run.info.run_id)


def table_folders(path: Path) -> list[Source]:
    """Return the runs that have nothing but tables: in ``path``, in its folders, and in project folders."""
    return [Committed(folder) for folder in _folders(path) if os.path.isfile(folder / FOLDER / FILE)]


def _folders(path: Path, below: int = 2) -> Iterator[Path]:
    """Yield ``path`` and the folders inside, except for run folders and their contents."""
    if os.path.exists(path / layout.RUN_JSON):
        return
    yield path
    found = list[os.DirEntry[str]]()
    with contextlib.suppress(OSError):
        if below:
            with os.scandir(path) as entries:
                found = sorted(entries, key=attrgetter("name"))
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                yield from _folders(path / entry.name, below - 1)
