"""Tables of an earlier release lack the columns that came later; everything reads them."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from pathlib import Path

import pyarrow.parquet as pq

from autotrace.ship import readers
from autotrace.ship.readers import of_run
from autotrace.tables.columns import ID
from autotrace.tables.conditions import EVERY
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
    wanted = "SELECT count(*), count(prompt), count(DISTINCT trace_id) FROM trajectories"
    with contextlib.closing(of_run(own[0])) as reader:
        ((count, prompts, ids),) = reader.sql(wanted).rows()
    assert count == prompts == ids == 384
    with contextlib.closing(readers.open(tmp_path).reader()) as reader:
        assert reader.sql(wanted).rows() == [(3 * count, 2 * prompts, ids)]
