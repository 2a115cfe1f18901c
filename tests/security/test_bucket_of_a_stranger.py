"""A bucket may say anything about itself: what reading it may take follows from the list of its objects alone."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import fsspec
import pytest

import autotrace
from autotrace.run import files, info, layout
from autotrace.tables import commits, connection
from autotrace.tables.errors import QueryError
from autotrace.tables.reader import Reader
from tests.security import reading, strangers

BUCKET = "memory:///sizes"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The folder of a run in a lake whose lines state a petabyte a file."""
    lake = strangers.tables_with(tmp_path, "run_id", "run")
    (lines,) = lake.rglob(commits.FILE)
    found = commits.snapshot(lines.read_bytes())
    for commit in found.commits:
        for added in commit.files.values():
            added.bytes = 1 << 50
    lines.write_bytes(b"".join(commit.line() for commit in found.commits))
    return lines.parent.parent


def opened(folder: Path) -> Reader:
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists("/sizes"):
        filesystem.rm("/sizes", recursive=True)
    filesystem.put(str(folder), "/sizes", recursive=True)
    (run,) = autotrace.open(BUCKET)
    return run.reader()


LIMIT = "current_setting('memory_limit')"


def in_bytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * 1024 ** ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)


def limit_of(connection: duckdb.DuckDBPyConnection) -> float:
    ((text,),) = connection.execute(f"SELECT {LIMIT}").fetchall()
    return in_bytes(text)


def test_what_commands_take_follows_from_the_list(tables: Path, tmp_path: Path) -> None:
    told = {"run_id": "other", "created": "", "command": [""] * (info.MOST // 3), "host": "", "main_pid": 1}
    (tables / layout.RUN_JSON).write_text(json.dumps({**told, "backends": []}))
    here, mine = tmp_path / "here", tmp_path / "mine"
    here.mkdir()
    sql = ["sql", f"SELECT count(*) AS n, any_value(run_id) AS run, {LIMIT} AS most FROM trajectories"]
    every = [[*sql, strangers.BUCKET, "--json"], ["ls", strangers.BUCKET, "--json"]]
    answers = reading.run(every, here, mine, bucket=tables.parents[1])
    assert not reading.faults(answers)
    assert not any(one["code"] for one in answers), answers
    asked, listed = (json.loads(one["out"].splitlines()[0]) for one in answers)
    whole = sum(path.stat().st_size for path in tables.rglob("*.parquet"))
    assert asked["n"] == 2 and asked["run"] == listed["run_id"] == "run"
    assert in_bytes(asked["most"]) <= connection.MEMORY + connection.EXPANDED * whole + (1 << 20)


def test_the_sizes_are_those_of_the_list(tables: Path) -> None:
    reader = opened(tables)
    whole = sum(path.stat().st_size for path in tables.rglob("*.parquet"))
    assert reader.count() == 2 and reader.run.size() == whole
    assert limit_of(reader.views.database) <= connection.MEMORY + connection.EXPANDED * whole + (1 << 20)


def test_no_size_lifts_the_ceiling() -> None:
    assert limit_of(connection.connect([], 1 << 60)) <= connection.CEILING


def test_a_run_json_that_is_too_large_is_not_fetched(tables: Path) -> None:
    told = {"run_id": "other", "created": "", "command": [""] * (info.MOST // 3), "host": "", "main_pid": 1}
    (tables / layout.RUN_JSON).write_text(json.dumps({**told, "backends": []}))
    assert opened(tables).run.info.run_id == "run"


def test_lines_that_are_too_large_are_one_sentence(tables: Path) -> None:
    (tables / commits.FOLDER / commits.FILE).write_bytes(b"\n" * (files.MOST + 1))
    with pytest.raises(QueryError, match="is too large to be one of a run"):
        opened(tables)
