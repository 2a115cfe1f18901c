"""Tables of an earlier release lack the columns that came later; everything reads them."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from autotrace.ship import readers
from autotrace.ship.readers import of_run
from autotrace.tables.columns import ID
from autotrace.tables.commits import snapshot
from autotrace.tables.conditions import EVERY, condition
from autotrace.tables.errors import QueryError
from autotrace.tables.schema import TABLES
from tests.places import ROOT

LATER = {
    "trajectories": ["label", "label_why", "prompt", "entropy"],
    "turns": ["cached_tokens"],
    "spans": ["error_type"],
}


def recorded(folder: Path) -> Path:
    """A run folder in ``folder``."""
    shutil.copytree(ROOT / "examples" / "recorded_run" / "run", folder, dirs_exist_ok=True)
    (run,) = [path.parent for path in folder.rglob("run.json")]
    return run


def without_later(path: Path) -> list[str]:
    """Take the columns away that came later; the name of the table if it had some."""
    rows = pq.read_table(path)
    later = [column for column in LATER.get(path.parent.name, ()) if column in rows.column_names]
    pq.write_table(rows.drop_columns(later), path)
    return [path.parent.name] if later else []


def of_this_release(run: Path) -> None:
    """The commits of ``run`` say which columns its files have."""
    path = run / "tables" / "commits.jsonl"
    commits = snapshot(path.read_bytes()).commits
    for commit in commits:
        for name, added in commit.files.items():
            added.form = TABLES[name].form
    path.write_bytes(b"".join(commit.line() for commit in commits))


def test_columns_that_came_later_are_empty(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    assert {name for path in sorted(folder.rglob("*.parquet")) for name in without_later(path)} == LATER.keys()
    with contextlib.closing(of_run(folder)) as reader:
        rows = reader.select(EVERY, (*ID, "label", "prompt"), limit=5)
        assert len(rows) == 5 and {(row.label, row.prompt) for row in rows} == {(None, None)}
        for row, one in reader.each(rows):
            assert one is not None and one.trace_id == row.trace_id and len(one.spans) > 3


def test_files_that_were_exchanged_are_read_by_a_reader_that_is_open(tmp_path: Path) -> None:
    """The end of a run makes one file of some."""
    shutil.copytree(ROOT / "examples" / "recorded_run" / "run", tmp_path, dirs_exist_ok=True)
    (tables,) = [path.parent for path in tmp_path.rglob("commits.jsonl")]
    with contextlib.closing(of_run(tables.parent)) as reader:
        rows = reader.select(EVERY, ID, limit=1)
        commits = (tables / "commits.jsonl").read_text()
        for path in tables.glob("*/*.parquet"):
            exchanged = path.with_suffix(".c.parquet")
            commits = commits.replace(path.name, exchanged.name)
            path.rename(exchanged)
        lines = [line.rpartition(',"crc":')[0] for line in commits.splitlines()]
        whole = [f'{line},"crc":{zlib.crc32(f"{line}}}".encode())}}}\n' for line in lines]
        (tables / "commits.jsonl").write_text("".join(whole))
        assert [one is not None for _, one in reader.each(rows)] == [True]
        assert len(reader.select(EVERY, ("trace_id", "reward", "step"))) == 384


def test_runs_of_this_release_and_of_an_earlier_one_are_asked_together(tmp_path: Path) -> None:
    earlier, *own = [recorded(tmp_path / name) for name in ("earlier", "own", "another")]
    for path in earlier.rglob("*.parquet"):
        without_later(path)
    for run in own:
        of_this_release(run)
    wanted = "SELECT count(*), count(prompt), count(DISTINCT trace_id) FROM trajectories"
    with contextlib.closing(of_run(own[0])) as reader:
        ((count, prompts, ids),) = reader.sql(wanted).rows()
    assert count == prompts == ids == 384
    with contextlib.closing(readers.open(tmp_path).reader()) as reader:
        assert reader.sql(wanted).rows() == [(3 * count, 2 * prompts, ids)]


def test_a_fact_that_came_later_is_what_the_table_of_facts_says(tmp_path: Path) -> None:
    """Of runs of an earlier release, alone and beside others."""
    known = "SELECT count(entropy), sum(entropy) FROM trajectories"
    earlier, own = [recorded(tmp_path / name) for name in ("earlier", "own")]
    of_this_release(own)
    with contextlib.closing(of_run(own)) as reader:
        ((count, total),) = reader.sql(known).rows()
    for path in earlier.rglob("*.parquet"):
        without_later(path)
    with contextlib.closing(of_run(earlier)) as reader:
        assert reader.sql(known).rows() == [(count, pytest.approx(total))] and count > 300
        assert reader.count(condition("entropy > 0")) == count
    with contextlib.closing(readers.open(tmp_path).reader()) as reader:
        assert reader.sql(known).rows() == [(2 * count, pytest.approx(2 * total))]


def test_files_that_are_not_what_their_commit_says_are_named(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name) for name in "ab"]
    for run in runs:
        of_this_release(run)
    for path in runs[1].rglob("*.parquet"):
        without_later(path)
    with (
        contextlib.closing(readers.open(tmp_path).reader()) as reader,
        pytest.raises(QueryError, match=r"could not be found in file .*b/tables/trajectories"),
    ):
        reader.sql("SELECT count(prompt) FROM trajectories").rows()
