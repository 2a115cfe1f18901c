"""Write the tables of a run folder: a batch of trajectories is a file for each table and a line of ``commits.jsonl``.
Small files are merged, so that readers open few files. A traced process never imports this module.

After a kill at any moment, or on a full disk, committed rows exist once and other rows do not: files are written and
synced first, the line is the commit. Only the holder of ``shipper.lock`` writes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from autotrace.config import environment as env
from autotrace.run import files
from autotrace.tables import arrow, metrics
from autotrace.tables.commits import FILE, FOLDER, LINGERS, SUFFIX, Added, Commit, Snapshot, folded, snapshot
from autotrace.tables.connection import connect, expanded
from autotrace.tables.metrics import METRICS, OfStep
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import OF_TRAJECTORIES, TABLES, WITH_FACTS
from autotrace.tables.storage import failed, sync
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.model import Trajectory

MANY, FEW = 32, 2
"""Number of files in a range of ``SIZES`` that are merged; at the end of a run, or where the files fill a full file."""
FULL = 64 << 20
"""Bytes of a file that is not merged any more."""
SIZES = (0, 1 << 20), (1 << 20, FULL)
"""Ranges of file sizes in bytes: each row is written about three times. At the end of a run only the first range
counts."""
LATEST = 8
"""Latest commits whose files are not merged while the run goes on: the files may hold trajectories that are given
again."""

REMEMBERED = 10_000
"""Minimum number of trajectories that the writer remembers as committed."""


def to_merge(found: Snapshot, everything: bool) -> tuple[str, list[str]] | None:
    """Return a table and the files to merge."""
    recent = [*islice((commit for commit in reversed(found.commits) if not commit.removes), LATEST)]
    for table, by_path in found.files.items():
        latest = set() if everything else {f"{table}/{of.files[table].name}" for of in recent if table in of.files}
        for least, most in ((0, FULL),) if everything and found.superseded else SIZES[: 1 if everything else 2]:
            taken, size = list[str](), 0
            for path, file in by_path.items():
                if least <= file.bytes < most and size < FULL and path not in latest:
                    taken.append(path)
                    size += file.bytes
            if len(taken) >= (FEW if everything or size >= FULL else MANY):
                return table, taken
    return None


def counting(path: Path, superseded: Mapping[str, int]) -> Iterator[pa.Table]:
    """Yield the rows of a file that count, a row group at a time."""
    ids = pa.array(superseded, pa.string())
    since = pa.array(superseded.values(), pa.int64())
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)  # each thread would keep memory of its own
            if len(ids):
                import pyarrow.compute as pc  # few runs need it, and it takes a quarter of pyarrow's start

                place = pc.index_in(table["trace_id"], value_set=ids)
                old = pc.less(table["version"], since.take(place.combine_chunks()))
                table = table.filter(pc.invert(pc.fill_null(old, False)))
            if table.num_rows:
                yield table


class TableWriter:
    """Write the tables of a run folder, for one thread at a time. All methods raise ``StorageError``."""

    def __init__(self, run_folder: Path, run_id: str) -> None:
        self.folder = run_folder / FOLDER
        self.run_id = run_id
        self._snapshot: Snapshot | None = None
        self._given: dict[str, int] = {}
        """Committed trajectories that may be given again -> version."""
        self._removed: dict[str, float] = {}

    def write(self, trajectories: Sequence[Trajectory]) -> int:
        """Commit ``trajectories``, except for trajectories already committed in this version. Returns bytes of the
        files."""
        return self._written(trajectories, OF_TRAJECTORIES)

    def write_facts(self, trajectories: Sequence[Trajectory]) -> int:
        """Commit the facts of ``trajectories``, whose calls are already committed and not read. Returns bytes."""
        return self._written(trajectories, WITH_FACTS)

    def _written(self, trajectories: Sequence[Trajectory], names: Collection[str]) -> int:
        with self._errors():
            self._opened()
            rollouts = [Rollout(one) for one in trajectories if self._given.get(one.trace_id, 0) < one.version]
            try:
                size = self._write(rollouts, names) if rollouts else 0
                if len(self._given) > REMEMBERED:
                    self._given.clear()
                self._given |= {one.trace_id: one.version for one in rollouts}
                return size
            finally:
                for rollout in rollouts:
                    rollout.release()

    def write_metrics(self, step: int, numbers: OfStep) -> None:
        """Commit the numbers of a step, replacing earlier numbers of the step."""
        with self._errors():
            found = metrics.rows(self.run_id, {step: numbers}, self._opened().batch + 1)
            if found:
                self._commit({METRICS.name: [arrow.from_rows(METRICS.columns, found)]}, {}, 0)

    def compact(self, everything: bool = False) -> bool:
        """Merge small files, if there are many, or a few and ``everything`` is set; return whether files were
        merged."""
        with self._errors():
            found = self._opened()
            self._sweep(found, LINGERS)
            chosen = to_merge(found, everything)
            if chosen is None or not self._are_bounded(chosen[1]):
                return False
            table, paths = chosen
            name = f"{found.batch + 1:06}.c{SUFFIX}"
            superseded = {} if table == METRICS.name else found.superseded
            rows = (some for path in paths for some in counting(self.folder / path, superseded))
            added = self._file(table, name, rows)
            self._append(Commit(found.batch + 1, time.time_ns(), {table: added} if added.rows else {}, paths))
            self._removed |= dict.fromkeys(paths, time.monotonic())
            if len(found.commits) > MANY + sum(map(len, found.files.values())):
                self._fold(LINGERS)
            return True

    def finish(self) -> None:
        """End writing for now: leave few files, and only files that count. Concurrent readers must read
        ``commits.jsonl`` again."""
        while self.compact(everything=True):
            pass
        with self._errors():
            self._sweep(self._opened(), lingers=0.0)
            self._fold(0.0)

    def _write(self, rollouts: list[Rollout], names: Collection[str]) -> int:
        made: dict[str, Iterable[pa.Table]] = {}
        for name in names:
            table = OF_TRAJECTORIES[name]
            if rows := table.rows(rollouts):
                made[name] = arrow.in_parts(table.columns, rows)
        again = {one.trace_id: one.version for one in rollouts if one.version > 1}
        if TRAJECTORIES.name in names:
            return self._commit(made, again, len(rollouts))
        return self._commit(made, {}, 0)

    def _commit(self, made: Mapping[str, Iterable[pa.Table]], supersedes: dict[str, int], count: int) -> int:
        batch = self._opened().batch + 1
        name = f"{batch:06}{SUFFIX}"
        added = {table: self._file(table, name, content) for table, content in made.items()}
        self._append(Commit(batch, time.time_ns(), added, [], supersedes, count))
        return sum(file.bytes for file in added.values())

    # -- files ---------------------------------------------------------------------------------------------------------

    def _file(self, table: str, name: str, rows: Iterable[pa.Table]) -> Added:
        """Write ``rows`` to a file, unless there are no rows. The file counts once a line names the file."""
        folder = self.folder / table
        files.folder(folder)
        part = folder / f".{name}.part"
        count = arrow.write_file(part, table, self.run_id, rows)
        if not count:
            part.unlink()
            return Added(name, 0, 0)
        sync(part)
        os.replace(part, folder / name)
        sync(folder)
        return Added(name, count, (folder / name).stat().st_size)

    def _append(self, commit: Commit) -> None:
        """Append the line of a commit."""
        found = self._opened()
        line = commit.line()
        fd = files.append(self.folder / FILE)
        try:
            os.ftruncate(fd, found.size)
            files.write_all(fd, line)
            os.fsync(fd)
        finally:
            os.close(fd)
        found.add(commit)
        found.size += len(line)

    def _fold(self, lingers: float) -> None:
        """Drop files that were removed more than ``lingers`` seconds ago from the lines: every reader reads all
        lines."""
        found = self._opened()
        lines = folded(found, time.time_ns() - int(lingers * 1e9))
        if len(lines) == len(found.commits):
            return
        text = b"".join(commit.line() for commit in lines)
        part = self.folder / f".{FILE}.part"
        try:
            with os.fdopen(files.overwrite(part), "wb") as file:
                file.write(text)
            sync(part)
            os.replace(part, self.folder / FILE)
        except OSError:  # leftover lines lose nothing
            with contextlib.suppress(OSError):
                part.unlink()
            return
        found.commits, found.size = lines, len(text)
        sync(self.folder)

    def _opened(self) -> Snapshot:
        """Return the committed state, read from the disk if not known or no longer known."""
        if self._snapshot is None:
            files.folder(self.folder)
            try:
                text = (self.folder / FILE).read_bytes()
            except FileNotFoundError:
                text = b""
            found = snapshot(text)
            self._given = self._latest(found)
            self._sweep(found, LINGERS, begins=True)
            self._snapshot = found
            sync(self.folder)
        return self._snapshot

    def _latest(self, found: Snapshot) -> dict[str, int]:
        """Return trace id -> version in the latest files: a shipper that was killed, or got an error, gives these
        trajectories again."""
        latest: dict[str, int] = {}
        for table in (TRAJECTORIES.name, "facts"):
            for path in [*found.files.get(table, ())][-LATEST:]:
                with contextlib.suppress(FileNotFoundError):
                    if not self._are_bounded([path]):
                        continue
                    rows = pq.read_table(self.folder / path, columns=["trace_id", "version"])
                    for trace_id, version in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                        latest[trace_id] = max(version, latest.get(trace_id, 0))
        return latest

    def _are_bounded(self, paths: Sequence[str]) -> bool:
        """Tell whether the rows of files of a run that may be a stranger's take memory in proportion to their bytes.
        Files that do not are neither read nor merged."""
        if not env.is_by_hand(self.folder.parent):
            return True
        import duckdb

        named = [str(self.folder / path) for path in paths]
        try:
            return not any(expanded(connect([path], os.path.getsize(path), threads="1"), path) for path in named)
        except duckdb.Error:
            return False

    def _sweep(self, found: Snapshot, lingers: float, begins: bool = False) -> None:
        """Remove files that no line names any more, once no reader can use the files; ``begins``: also files that no
        line ever named."""
        now, now_ns = time.monotonic(), time.time_ns()
        if begins:
            since_ns = {path: commit.at_ns for commit in found.commits for path in commit.removes}
            there = {f"{table}/{file.name}" for table in TABLES for file in (self.folder / table).glob("*")}
            for path in there.difference(*found.files.values()):
                self._removed[path] = now - max(0, now_ns - since_ns.get(path, 0)) / 1e9  # a clock may be set back
        for path in [path for path, since in self._removed.items() if now - since >= lingers]:
            (self.folder / path).unlink(missing_ok=True)
            del self._removed[path]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise ``StorageError`` within the block; after a failure the disk is read again: the line may be present,
        torn or missing."""
        try:
            yield
        except BaseException as error:
            self._snapshot = None
            if isinstance(error, (OSError, pa.ArrowException)):
                raise failed(str(self.folder), error) from error
            raise
