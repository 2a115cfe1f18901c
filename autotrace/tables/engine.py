"""DuckDB over the rows of sources: a database in memory that opens only the files it is given, and writes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from autotrace.tables.columns import Column

if TYPE_CHECKING:
    import duckdb

TYPES = {
    "string": "VARCHAR", "json": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT", "int32": "INTEGER", "int8": "TINYINT",
    "float64": "DOUBLE", "float32": "FLOAT",
}  # fmt: skip


MEMORY, EXPANDED = 512 << 20, 8
"""Bytes that a question may take, and how many more for each byte of what it may read."""

AT_ONCE = 2_000
"""Rows."""


def connect(files: Sequence[str] = (), beside: int = 0, **settings: str) -> duckdb.DuckDBPyConnection:
    """A database that can open ``files``, and nothing else: no other file, no address, no variable of Python's.
    ``beside``: bytes that are put beside them; ``settings``: more of DuckDB's."""
    import duckdb

    size = beside + sum(os.stat(file).st_size for file in files)
    own = {
        "python_enable_replacements": "false", "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false", "temp_directory": "",
        "memory_limit": f"{(MEMORY + EXPANDED * size) >> 20}MB",
    }  # fmt: skip
    connection = duckdb.connect(":memory:", config={**own, **settings})
    if files:
        connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def read(files: Sequence[str]) -> str:
    """SQL for the rows of ``files``."""
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], union_by_name = true)"


def duck_type(name: str) -> str:
    """DuckDB's type for a column's ``type``."""
    return f"{TYPES[name[5:-1]]}[]" if name.startswith("list<") else TYPES[name]


def put(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[Column], rows: Iterable[tuple[Any, ...]]
) -> None:
    """Make the table ``name`` of ``rows``. They go there as JSON, ``AT_ONCE`` at a time: that needs neither Arrow nor
    numpy, which take longer to import than a list takes to be shown."""
    types = {column.name: duck_type(column.type) for column in columns}
    declared = ", ".join(f'"{column}" {kind}' for column, kind in types.items())
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
    structure = json.dumps({column: [[kind[:-2]] if kind.endswith("[]") else kind] for column, kind in types.items()})
    unnested = ", ".join(f'unnest(document."{column}")' for column in types)
    sql = f"INSERT INTO {name} SELECT {unnested} FROM (SELECT from_json(?, '{structure}') AS document)"
    listed = iter(rows)
    while chunk := list(islice(listed, AT_ONCE)):
        columns_of = dict(zip(types, zip(*chunk, strict=True), strict=True))
        connection.execute(sql, [msgspec.json.encode(columns_of).decode()])


def of_file(column: Column, present: set[str], one: str = "") -> str:
    """A column of a file; of one that an earlier release wrote, what follows from the others."""
    if column.name in present:
        return f'{one}"{column.name}"'
    value = "true" if column.name == "complete" else "NULL"
    return f'CAST({value} AS {duck_type(column.type)}) AS "{column.name}"'
