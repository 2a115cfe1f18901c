"""Work on files that is killed wherever it changes one, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
"""Forked from a process that has only imported. In the one of pytest, pyarrow and DuckDB have threads, and no child may
rely on what they held."""
PROCESSES.set_forkserver_preload(
    ["tests.faults.test_tables", "tests.sinks.test_parquet", "pandas", "pyarrow.dataset", "autotrace.ship.retention"]
)


def in_child(work: Callable[..., object], *arguments: Any) -> int | None:
    """The exit code of a process that does ``work``."""
    process = PROCESSES.Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


CHANGES = ("open", "write", "replace", "fsync", "ftruncate", "unlink")
"""Calls of ``os`` that change files."""
STATEMENTS = ("BEGIN", "COMMIT", "INSERT", "UPDATE", "DELETE")
"""SQL that changes a database."""


def killed(work: Callable[[Path], Any], at: Path, after: int) -> None:
    """Do ``work``, and die at the ``after``-th call or statement that changes something. The last bytes that a call
    writes are half."""
    changes = iter(range(100_000))

    def meet(name: str, *args: Any) -> None:
        if next(changes) >= after:
            if name == "write":
                write(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    def around(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            meet(name, *args)
            return real(*args, **options)

        return call

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*args, **options)
        database.set_trace_callback(lambda sql: meet("sql") if sql.startswith(STATEMENTS) else None)
        return database

    write, connect = os.write, sqlite3.connect
    for name in CHANGES:
        setattr(os, name, around(name))
    sqlite3.connect = connected  # type: ignore[assignment]
    work(at)


def killed_everywhere(
    folder: Path, work: Callable[[Path], Any], check: Callable[[Path, bool], None], every: int = 1
) -> int:
    """Kill ``work`` on a copy of ``folder`` at each of its calls and statements that change something, or at one of
    ``every`` so many; return how many calls and statements there are. ``check`` is given each copy, and whether
    ``work`` came to its end there."""
    for after in range(0, 1_000, every):
        at = folder.with_name(str(after))
        shutil.copytree(folder, at)
        code = in_child(killed, work, at, after)
        assert code in (0, -signal.SIGKILL)
        check(at, code == 0)
        if code == 0:
            return after
    raise AssertionError
