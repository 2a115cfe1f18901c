"""Which files of the tables are made one, so that readers open few. A killed shipper's next one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from autotrace.tables.commits import Snapshot

MANY, FEW = 32, 2
"""Small files of a table that are made one; at the end of a run."""
FULL = 64 << 20
"""Bytes of a file that is left as it is."""
SMALL = 2 << 20, FULL
"""Files below so many bytes are made one; so each row is written about three times."""
LATEST = 8
"""Commits whose files are left as they are while the run goes on: they may hold what is given once more."""


def chosen(found: Snapshot, everything: bool) -> tuple[str, list[str]] | None:
    """A table and the files to make one of it."""
    recent = [*islice((commit for commit in reversed(found.commits) if not commit.removes), LATEST)]
    for table, by_path in found.files.items():
        latest = {f"{table}/{commit.files[table].name}" for commit in recent if table in commit.files}
        for limit in (FULL,) if everything else SMALL:
            taken, size = list[str](), 0
            for path, file in by_path.items():
                if file.bytes < limit and size < FULL and (everything or path not in latest):
                    taken.append(path)
                    size += file.bytes
            if len(taken) >= (FEW if everything else MANY):
                return table, taken
    return None


def rows(path: Path, superseded: Mapping[str, int]) -> Iterator[pa.Table]:
    """The rows of a file that count, a row group at a time."""
    ids = pa.array(superseded, pa.string())
    since = pa.array(superseded.values(), pa.int64())
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            if len(ids):
                place = pc.index_in(table["trace_id"], value_set=ids)
                old = pc.less(table["version"], since.take(place.combine_chunks()))
                table = table.filter(pc.invert(pc.fill_null(old, False)))
            if table.num_rows:
                yield table
