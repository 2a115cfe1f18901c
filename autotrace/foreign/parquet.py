"""Read rows of a stranger's Parquet file. The rows take memory in proportion to the file's bytes."""

from __future__ import annotations

import os
from typing import Any

from autotrace.foreign.opened import Opened, Rows
from autotrace.trajectory.jsonable import jsonable

MOST_ROLLOUTS, ROWS, A_ROW = 1_000_000, 10_000, 4
"""Maximum rollouts of a run; rows of any file, and bytes of the file for each further row: equal rows take no bytes."""
AT_ONCE, ROWS_AT_ONCE, PADDED = 1 << 16, 256, 4
"""Values and rows to read at once; bytes that count for a value in the whole file: padding takes no bytes."""


def parquet_rows(opened: Opened, start: int, most: str = "ALL") -> Rows:
    """Yield at most ``most`` rows; for "0" the names of the columns. Before the first row is fetched, DuckDB computes
    the size of the rows in memory: the file holds a text that many rows share only once. Arrow then fetches few rows
    at once; DuckDB alone would fetch 2,048, which takes gigabytes for long lists."""
    import duckdb
    import pyarrow.parquet as pq

    from autotrace.tables.connection import A_VALUE, allowed, connect, expanded, read

    with opened.reading() as file:  # checks for a regular file and no link
        path = str(opened.path)
        try:
            connection = connect([path], os.path.getsize(path), threads="1")
            entries = connection.sql(f"SELECT * FROM {read([path])}").columns
            if most == "0":
                yield 0, dict.fromkeys(entries)
                return
            asked = f"SELECT sum(num_values) FROM parquet_metadata(['{path.replace(chr(39), 2 * chr(39))}'])"
            table = pq.ParquetFile(file)
            count, values = table.metadata.num_rows, connection.execute(asked).fetchall()[0][0] or 0
            if not opened.is_bounded:
                if count > ROWS + os.path.getsize(path) // A_ROW:
                    raise opened.wrong(f"it has {count:,} rows, far more than its bytes can tell apart")
                if count > MOST_ROLLOUTS:
                    raise opened.wrong(f"it has {count:,} rows, more than {MOST_ROLLOUTS:,}; write smaller files")
                if size := expanded(connection, path, PADDED):
                    raise opened.wrong(f"its rows would take {size >> 20:,} MB, far more than the file has")
                if (size := A_VALUE * values // max(1, count)) > allowed(path):
                    raise opened.wrong(f"a row would take {size >> 20:,} MB, far more than the file has")
            opened.is_bounded = True
            at = 0
            at_once = min(ROWS_AT_ONCE, max(1, AT_ONCE * count // (values + 1)))
            for batch in table.iter_batches(at_once, use_threads=False):
                if at + batch.num_rows > start:
                    if (size := A_VALUE * sum(map(_values, batch.columns))) > allowed(path):
                        raise opened.wrong(f"a row would take {size >> 20:,} MB, far more than the file has")
                    for row in connection.from_arrow(batch.slice(max(0, start - at))).fetchall():
                        yield start, jsonable(dict(zip(entries, row, strict=True)))
                        start += 1
                at += batch.num_rows
        except duckdb.Error as error:
            raise opened.wrong(str(error).partition("\n")[0]) from error


def _values(array: Any) -> int:
    """Return the number of values in an Arrow array, with the values in lists and structs."""
    import pyarrow as pa

    parts = array.flatten() if pa.types.is_nested(array.type) else []
    return len(array) + (sum(map(_values, parts)) if isinstance(parts, list) else _values(parts))
