"""Versions of a trajectory count within its run."""

from __future__ import annotations

import contextlib
from pathlib import Path

import duckdb
import pytest

import autotrace
from autotrace.insight.examine import examine
from autotrace.insight.profile import encode
from autotrace.insight.settings import TrainerSettings
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.tables.committed import Committed, table_folders
from autotrace.tables.reader import Reader
from autotrace.tables.steps import steps
from autotrace.tables.writer import TableWriter
from autotrace.trajectory.model import Span
from tests.run_folder import rollout
from tests.ship.spools import Process, new_run
from tests.tables.reading import committed
from tests.tables.test_writer import made


def test_what_came_late_in_one_run_counts_there_alone(tmp_path: Path) -> None:
    """Its facts, and a late call that replaced its rows."""
    one, other = TableWriter(tmp_path / "one", "one"), TableWriter(tmp_path / "other", "other")
    for tables, run_id in ((one, "one"), (other, "other")):
        first = made()
        first.run_id = run_id
        tables.write([first])
    late = made(version=2, advantage=0.5)
    grown = made(version=3, advantage=0.25)
    for changed in (late, grown):
        changed.run_id = "one"
    one.write([late])
    reader = Reader([Committed(tmp_path / "one"), Committed(tmp_path / "other")])
    alone = reader.sql("SELECT run_id, version FROM trajectories ORDER BY run_id").rows()
    assert [tuple(row) for row in alone] == [("one", 2), ("other", 1)], "whatever else is asked for"
    columns = ("run_id", "version", "advantage")
    assert [tuple(row) for row in reader.select(columns=columns)] == [("one", 2, 0.5), ("other", 1, None)]
    reader.close()
    grown.spans[-1].status = "ERROR"
    one.write([grown])
    reader = Reader([Committed(tmp_path / "one"), Committed(tmp_path / "other")])
    assert [tuple(row) for row in reader.select(columns=columns)] == [("one", 3, 0.25), ("other", 1, None)]
    calls = reader.sql("SELECT run_id, count(*) FROM spans GROUP BY run_id ORDER BY run_id").rows()
    assert [tuple(row) for row in calls] == [("one", len(grown.spans)), ("other", len(grown.spans))]
    reader.close()


def test_a_fact_that_comes_after_its_shipper_ended_is_appended(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "one")
    process = Process(folder, run_id="one")
    trace, _ = (rollout(process, step=1, rollout=number, uid="u1", reward=float(number)) for number in (0, 1))
    assert ship(folder, once=True).state == "done"
    process.fact("advantage", 0.75, trace)
    process.exit()
    assert ship(folder, once=True).state == "done"
    found = committed(folder)
    assert not found.superseded and [file.rows for file in found.files["trajectories"].values()] == [2]
    with contextlib.closing(of_run(folder)) as reader:
        assert [row.advantage for row in reader.select(columns=("advantage",))] == [0.75, 0.5]


@pytest.mark.parametrize("compacted", [False, True])
def test_facts_that_came_late_are_in_the_rows_of_trajectories(tmp_path: Path, compacted: bool) -> None:
    tables = TableWriter(tmp_path, "run")
    tables.write([made()])
    tables.write([made(sample=18)])
    if compacted:
        tables.finish()
    with contextlib.closing(Reader([Committed(tmp_path)])) as reader:
        assert [row.reward for row in reader.select(columns=("reward",))] == [1.0, 1.0]
    tables.write([made(version=2, advantage=0.5)])
    if compacted:
        tables.finish()
    with contextlib.closing(Reader([Committed(tmp_path)])) as reader:
        assert sorted(row.advantage or 0 for row in reader.select(columns=("advantage",))) == [0, 0.5]


def test_texts_are_compared_with_what_rewards_judged(tmp_path: Path) -> None:
    """The records of a step are read whole, as rows are."""
    one = made()
    root = one.root
    reward = Span("ab" * 8, root.span_id, "compute_score", "reward", "x", root.start_ns + 10, root.start_ns + 20, "OK")
    reward.inputs = {"solution_str": "It is 42, rollout 0."}
    one.spans.append(reward)
    one.profile = encode(examine(one, TrainerSettings()))
    TableWriter(tmp_path, "run").write([one])
    reader = Reader([Committed(tmp_path)])
    (step,) = steps(reader, texts=True)
    assert [record.profile.judged for record in step.records] == [True]
    assert [found and found.trace_id for _, found in reader.each(step.records)] == [one.trace_id]
    reader.close()


def test_a_reader_of_texts_follows_files_that_were_made_one(tmp_path: Path) -> None:
    tables = TableWriter(tmp_path, "run")
    for sample in range(3):
        tables.write([made(sample=sample)])
    reader = Reader([Committed(tmp_path)])
    assert len(reader.containing("42")) == 3
    tables.finish()
    assert len(reader.containing("42")) == 3
    reader.close()


def test_a_folder_of_tables_is_found_beside_links_and_closed_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        TableWriter(tmp_path / "lake" / "project" / name, name).write([made()])
    (tmp_path / "lake" / "loop").symlink_to("loop")
    (tmp_path / "lake" / "project" / "loop").symlink_to("loop")
    (tmp_path / "lake" / "project" / "file").write_text("")
    assert [source.path.name for source in table_folders(tmp_path / "lake")] == ["one", "two"]


def test_a_folder_called_like_a_column_changes_no_value(tmp_path: Path) -> None:
    """DuckDB takes ``step=5`` in a path for a column of every file below."""
    folder = tmp_path / "step=5" / "run_id=other" / "reward=7"
    TableWriter(folder / "one", "one").write([made()])
    (folder / "dump").mkdir()
    duckdb.sql(f"COPY (SELECT 1 AS step, 'p' AS prompt, 'c' AS completion) TO '{folder}/dump/1.parquet'")
    sql = "SELECT run_id, step, reward FROM trajectories"
    found = [autotrace.open(folder / name).sql(sql).to_pylist() for name in ("one", "dump")]
    assert [[*row.values()] for (row,) in found] == [["20261121-1", 3, 1.0], ["dump", 1, None]]
