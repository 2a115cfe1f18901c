"""Connect DuckDB to the files of a run, and to nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotrace.tables.storage import RemoteStorage, is_url

if TYPE_CHECKING:
    import duckdb

MEMORY, EXPANDED = 512 << 20, 8
"""Bytes of memory that a question may take, and additional bytes for each byte that the question may read."""
CEILING = min(16 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
"""Maximum bytes of memory for a question of any size."""


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
    releases may have written, DuckDB takes the columns of all files."""
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], union_by_name = {several_runs})"


def first_line(error: Exception) -> str:
    """Return the first line of the message, at most 500 characters, without the position in the query."""
    return str(error).strip().partition("\n")[0][:500] or "there is too little memory"
