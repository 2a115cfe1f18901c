"""What the trainer logs of a step, as the table ``metrics``: while the run goes on, afterwards, again and elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import autotrace
from autotrace.export import parquet
from autotrace.run.info import RunInfo
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper, ship
from autotrace.spool.records import StepFacts
from autotrace.tables.storage import StorageError
from autotrace.tables.writer import TableWriter
from tests.ship.spools import Process, new_run, trajectory


@pytest.fixture(autouse=True)
def _no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTRACE_TABLES", raising=False)


def logged(process: Process, step: int, **numbers: float) -> None:
    process.write(StepFacts(step, "metrics", numbers, process.tick()))


def begun(tmp_path: Path, **given: Any) -> tuple[Path, Process]:
    """A run of three steps, and its process, which may write more."""
    run = new_run(tmp_path, **given)
    process = Process(run)
    process.bind("config", project_name="proj")
    for step in (1, 2, 3):
        trajectory(process, step=step, reward=0.5)
        logged(process, step, loss=step / 2)
    return run, process


def stored(root: Path) -> list[tuple[Any, ...]]:
    """Of each step the rows in their newest version."""
    files = f"{root}/**/tables/metrics/*.parquet"
    newest = "version = max(version) OVER (PARTITION BY run_id, step)"
    return duckdb.sql(
        f"SELECT run_id, step, source, name, value FROM '{files}' QUALIFY {newest} ORDER BY ALL"
    ).fetchall()


def test_a_step_is_committed_again_as_the_trainer_logs_more(tmp_path: Path) -> None:
    run, process = begun(tmp_path, backends=["parquet"])
    process.exit()
    assert ship(run, once=True).state == "done"
    for root in (run, tmp_path / "parquet"):
        assert stored(root) == [("run", step, "trainer", "loss", step / 2) for step in (1, 2, 3)]
    later = Process(run, "node-1-bb")
    logged(later, 3, loss=9.0, accuracy=0.25)
    later.write(StepFacts(3, "token_facts", {"left": 0.0}, later.tick()))
    later.exit()
    assert ship(run, once=True).state == "done"
    for root in (run, tmp_path / "parquet"):
        assert [row[1:] for row in stored(root) if row[1] == 3] == [
            (3, "token_facts", "left", 0.0), (3, "trainer", "accuracy", 0.25), (3, "trainer", "loss", 9.0),
        ]  # fmt: skip
    assert not list(tmp_path.rglob("*.part"))


def test_a_backend_that_is_named_later_gets_all_of_them(tmp_path: Path) -> None:
    run, process = begun(tmp_path, backends=["jsonl"])
    process.exit()
    assert ship(run, once=True).state == "done"
    info = RunInfo.read(run)
    info.backends = ["parquet"]
    info.write(run)
    assert ship(run, once=True).state == "done"
    assert [row[1] for row in stored(tmp_path / "parquet")] == [1, 2, 3]


def test_what_was_not_taken_is_stored_by_the_next_shipper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, process = begun(tmp_path, backends=["parquet"])
    process.exit()

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(TableWriter, "write_metrics", full)
        ship(run, once=True)
    assert not (run / "tables" / "metrics").exists()
    assert ship(run, once=True).state == "done"
    assert len(stored(tmp_path / "parquet")) == 3


def test_sql_and_python_have_them_before_any_file_is_written(tmp_path: Path) -> None:
    run, process = begun(tmp_path, backends=["parquet"])
    query = "SELECT step, value FROM metrics WHERE name = 'loss' ORDER BY step"
    assert autotrace.open(run).sql(query).to_pylist() == [{"step": step, "value": step / 2} for step in (1, 2, 3)]
    shipper = Shipper(run)
    try:
        while not list(tmp_path.glob("parquet/proj/run/tables/metrics/*.parquet")):
            shipper.step()
    finally:
        shipper.close()
    logged(process, 3, loss=7.0)
    process.exit()
    assert autotrace.open(run).table("metrics", step=3, columns=["value"])["value"].to_pylist() == [7.0]


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[Path]:
    """An export of two of three steps."""
    run, process = begun(tmp_path, backends=["jsonl"])
    process.exit()
    reader = of_run(run)
    chosen = [reader.load(row.trace_id) for row in reader.select() if row.step != 2]
    out = tmp_path / "tables"
    for _ in range(2):  # the second one replaces the first
        written = parquet.write(chosen, str(out), metrics={reader.run.info.run_id: reader.run.step_facts()})
        assert (written.trajectories, written.files) == (2, 6)
    reader.close()
    yield out


def test_an_export_has_those_of_its_steps_and_is_read_back(exported: Path) -> None:
    assert stored(exported) == [("run", 1, "trainer", "loss", 0.5), ("run", 3, "trainer", "loss", 1.5)]
    reader = of_run(exported)
    assert reader.run.step_facts() == {1: {"metrics": {"loss": 0.5}}, 3: {"metrics": {"loss": 1.5}}}
    assert reader.run.step_facts(3) == {3: {"metrics": {"loss": 1.5}}}
    reader.close()


def test_the_command_exports_them(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from autotrace.cli.main import main

    run, process = begun(tmp_path, backends=["jsonl"])
    process.exit()
    done = CliRunner().invoke(main, ["export", str(run), "--format", "parquet", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert len(stored(tmp_path / "out")) == 3 and os.listdir(tmp_path / "out") == ["proj"]
