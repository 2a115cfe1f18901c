"""One step of one run: which files have which trajectories, table by table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from autotrace.sinks.parquet.location import NO_STEP, SUFFIX, partition
from autotrace.sinks.parquet.store import Store, failed
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.tables.schema import OF_TRAJECTORIES

KEY = "trace_id"
_OURS = re.compile(rf"(?:.*/)?(?:{NO_STEP}|step-(?P<step>-?\d+))/(?P<begun>\d+)-\w+{re.escape(SUFFIX)}")


@dataclass
class File:
    """A Parquet file: its size and the trajectories that it has rows of."""

    size: int
    rows: int
    ids: frozenset[str]


@dataclass
class Partition:
    """The files of one step of one run. ``load`` reads what is there."""

    folders: dict[str, str]
    """Table -> folder."""
    files: dict[str, dict[str, File]] = field(default_factory=lambda: {table: {} for table in OF_TRAJECTORIES})
    """Table -> path -> file."""
    contents: dict[str, int] = field(default_factory=dict)
    """Trajectory -> digest of its rows in the large tables, where this process wrote them."""

    @classmethod
    def of(cls, project: str | None, run_id: str, step: int | None) -> Partition:
        """A partition of which nothing is known yet."""
        return cls({table: partition(table, project, run_id, step) for table in OF_TRAJECTORIES})

    def load(self, store: Store) -> None:
        """Read which files there are now; those that are known already are not opened again. Raises ``SinkError``."""
        for table, folder in self.folders.items():
            sizes = store.sizes(folder)
            known = self.files[table]
            if sizes.keys() != known.keys():
                self.files[table] = {
                    path: known.get(path) or _opened(store, path, size) for path, size in sorted(sizes.items())
                }

    def holding(self, table: str, ids: frozenset[str]) -> list[str]:
        """Paths of the files of ``table`` that have rows of ``ids``."""
        return [path for path, file in self.files[table].items() if not file.ids.isdisjoint(ids)]

    @property
    def ids(self) -> set[str]:
        """All its trajectories."""
        return {id for files in self.files.values() for file in files.values() for id in file.ids}

    def repeated(self, table: str) -> dict[str, frozenset[str]]:
        """Path -> trajectories that a newer file of ``table`` has, too: we were killed while it was being replaced.
        Names begin with the time."""
        seen: set[str] = set()
        again: dict[str, frozenset[str]] = {}
        for path in sorted(self.files[table], reverse=True):
            ids = self.files[table][path].ids
            if not ids.isdisjoint(seen):
                again[path] = ids & seen
            seen |= ids
        return again


_last = 0


def new_name(writer: str) -> str:
    """Name of a file, later than those before it."""
    global _last
    _last = max(_last + 1, time.time_ns())
    return f"{_last}-{writer}{SUFFIX}"


def located(store: Store, path: str) -> tuple[int | None, int]:
    """The step of a file, and when it was begun. Raises ``Refused`` for a file that is not one of ours."""
    name = _OURS.fullmatch(path)
    if name is None:
        raise Refused(
            f"{store.root}/{path} is not a file of autotrace's, and every reader would take it for one; move it away"
        )
    return (None if name["step"] is None else int(name["step"])), int(name["begun"])


def _opened(store: Store, path: str, size: int) -> File:
    located(store, path)
    try:
        with store.open(path) as source:
            ids = pq.read_table(source, columns=[KEY])[KEY]
        return File(size, len(ids), frozenset(pc.unique(ids).to_pylist()))
    except FileNotFoundError as error:
        raise Unavailable(f"another shipper of this run has just replaced {path}") from error
    except (KeyError, pa.ArrowInvalid) as error:
        raise Refused(
            f"{store.root}/{path} is damaged; move it away: what it held is in the run folder, and `autotrace export "
            "--format parquet` writes it again"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise failed(store.root, error) from error


def batches(store: Store, path: str, without: frozenset[str]) -> Iterator[pa.Table]:
    """The rows of a file that are not of ``without``, a row group at a time. Raises ``SinkError``."""
    dropped = pa.array(sorted(without), pa.string())
    try:
        with store.open(path) as source, pq.ParquetFile(source) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                if without:
                    table = table.filter(pc.invert(pc.is_in(table[KEY], value_set=dropped)))
                if table.num_rows:
                    yield table
    except FileNotFoundError as error:
        raise Unavailable(f"another shipper of this run has just replaced {path}") from error
    except (OSError, pa.ArrowException) as error:
        raise failed(store.root, error) from error
