"""Tables of an earlier release lack the columns that came later; everything reads them."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from pathlib import Path

import pyarrow.parquet as pq

from autotrace.ship.readers import of_run
from autotrace.tables.conditions import EVERY
from tests.places import ROOT

LATER = {
    "trajectories": ["label", "label_why", "prompt", "entropy"],
    "turns": ["cached_tokens"],
    "spans": ["error_type"],
}


def test_columns_that_came_later_are_empty(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "recorded_run" / "run", tmp_path, dirs_exist_ok=True)
    (folder,) = [path.parent for path in tmp_path.rglob("run.json")]
    lacking = set()
    for name, later in LATER.items():
        for path in (folder / "tables" / name).glob("*.parquet"):
            rows = pq.read_table(path)
            lacking |= {(name, column) for column in later if column in rows.column_names}
            pq.write_table(rows.drop_columns([column for column in later if column in rows.column_names]), path)
    assert {name for name, _ in lacking} == LATER.keys(), "no column was taken away"
    with contextlib.closing(of_run(folder)) as reader:
        rows = reader.select(EVERY, ("trace_id", "label", "prompt"), limit=5)
        assert len(rows) == 5 and {(row.label, row.prompt) for row in rows} == {(None, None)}
        for row, one in reader.each(rows):
            assert one is not None and one.trace_id == row.trace_id and len(one.spans) > 3


def test_files_that_were_exchanged_are_read_by_a_reader_that_is_open(tmp_path: Path) -> None:
    """The end of a run makes one file of some."""
    shutil.copytree(ROOT / "examples" / "recorded_run" / "run", tmp_path, dirs_exist_ok=True)
    (tables,) = [path.parent for path in tmp_path.rglob("commits.jsonl")]
    with contextlib.closing(of_run(tables.parent)) as reader:
        rows = reader.select(EVERY, ("trace_id",), limit=1)
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
