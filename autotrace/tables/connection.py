"""Connect DuckDB to the files of a run, and to nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotrace.tables.storage import RemoteStorage, is_url

if TYPE_CHECKING:
    import duckdb

MEMORY, EXPANDED = 512 << 20, 8
"""Bytes of memory that a question may take, and additional bytes for each byte that the question may read."""
CEILING = min(16 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
"""Maximum bytes of memory for a question of any size."""

LEAST, TIMES, A_VALUE = 64 << 20, 64, 64
"""Bytes that the rows of a Parquet file may take in memory, and for each byte of the file; maximum bytes of a value
without its text."""
_OF_ONE_SIZE = frozenset({
    "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint",
    "uhugeint", "float", "double", "decimal", "date", "time", "timestamp", "uuid",
})  # fmt: skip


def connect(files: Sequence[str], size: int, **settings: str) -> duckdb.DuckDBPyConnection:
    """Return a database that can open ``files`` (paths and URLs) and nothing else: no other file or address, and no
    variable of Python's. ``size``: bytes of all ``files``; ``settings``: further settings of DuckDB."""
    import duckdb

    remote = {file.partition("://")[0]: file for file in files if is_url(file)}
    own = {
        "python_enable_replacements": "false", "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false", "temp_directory": "",
        "memory_limit": f"{min(CEILING, MEMORY + EXPANDED * size) >> 20}MB",
    }  # fmt: skip
    connection = duckdb.connect(":memory:", config={**own, **settings})
    for url in remote.values():
        connection.register_filesystem(RemoteStorage(url).opened[0])
    if files:
        connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def read(files: Sequence[str], several_runs: bool = False) -> str:
    """Return SQL for the rows of ``files``, with the columns of the first file. With ``several_runs``, which several
    releases may have written, DuckDB takes the columns of all files. A folder called ``step=5`` is no column."""
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], union_by_name = {several_runs}, hive_partitioning = false)"


def first_line(error: Exception) -> str:
    """Return the first line of the message, at most 500 characters, without the position in the query."""
    return str(error).strip().partition("\n")[0][:500] or "there is too little memory"


def allowed(path: str) -> int:
    """Return the bytes that the rows of the Parquet file ``path`` may take in memory."""
    return LEAST + TIMES * os.path.getsize(path)


def expanded(connection: duckdb.DuckDBPyConnection, path: str, a_value: int = A_VALUE) -> int:
    """Return the bytes that the rows of the Parquet file ``path`` take in memory if these are far more than the file
    has, otherwise 0; ``a_value``: bytes of each value. The file holds a text that many rows share only once: before any
    text is fetched, the metadata tells the bytes of the distinct texts. Raises ``duckdb.Error``."""
    columns = connection.sql(f"SELECT * FROM {read([path])}")
    sizes = [_size_of(kind, _quoted(name)) for name, kind in zip(columns.columns, columns.types, strict=True)]
    asked = (
        f"SELECT greatest({a_value} * sum(num_values), sum(total_uncompressed_size) FILTER (type = 'BYTE_ARRAY'))"
        f" FROM parquet_metadata([{_quoted(path, chr(39))}])",
        f"SELECT sum({' + '.join(sizes)}) FROM {read([path])}",
    )
    for sql in asked:
        ((size,),) = connection.execute(sql).fetchall()
        if (size or 0) > allowed(path):
            return int(size)
    return 0


def _quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, 2 * mark) + mark


def _size_of(kind: Any, value: str, depth: int = 0) -> str:
    """Return SQL for the bytes of the texts in ``value``, which has DuckDB's type ``kind``."""
    if kind.id in ("list", "array"):
        within = _size_of(kind.child, item := f"item{depth}", depth + 1)
        return "0" if within == "0" else f"coalesce(list_sum([{within} for {item} in {value}]), 0)"
    if kind.id == "map":
        lists = (f"map_keys({value})", f"map_values({value})")
        parts = (
            f"coalesce(list_sum([{_size_of(of, f'item{depth}', depth + 1)} for item{depth} in {part}]), 0)"
            for (_, of), part in zip(kind.children, lists, strict=True)
        )
        return f"({' + '.join(parts)})"
    if kind.id == "struct":
        parts = (
            _size_of(of, f"struct_extract({value}, {_quoted(name, chr(39))})", depth) for name, of in kind.children
        )
        return f"({' + '.join(part for part in parts if part != '0') or 0})"
    if kind.id == "blob":
        return f"coalesce(octet_length({value}), 0)"
    if kind.id in _OF_ONE_SIZE:
        return "0"
    return f"coalesce(strlen(CAST({value} AS VARCHAR)), 0)"
