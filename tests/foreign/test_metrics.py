"""A run that nobody traced is read from what its logger wrote, without the logger's package."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import autotrace
from autotrace.cli.main import main
from autotrace.foreign import scalars
from autotrace.foreign.opened import Opened
from autotrace.insight.difference import settings_of
from autotrace.tables.errors import QueryError
from tests.foreign.makers.metrics import CONFIG, STEPS, of_step
from tests.foreign.test_formats import ROOT
from tests.security import reading

TRACKIO = """
import json, sys, trackio
config, steps = json.loads(sys.argv[1])
trackio.init(project="project", name="r", config=config)
for step, metrics in steps.items():
    trackio.log(metrics, step=int(step))
trackio.finish()
"""
NAMES = ("wandb", "tensorboard", "transformers", "verl", "console", "mlflow", "mlruns", "trackio", "csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logged")
    words = [sys.executable, "-m", "tests.foreign.makers.metrics", str(place)]
    done = subprocess.run(words, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    (place / "csv").mkdir()
    lines = ["step,actor/entropy,loss,note", *(f"{step},{0.5**step},{1 / step},x" for step in STEPS)]
    (place / "csv" / "metrics.csv").write_text("\n".join(lines))
    alone = ["-m", "uv", "run", "--quiet", "--no-project", "--isolated", "--with", "trackio==0.43.0", "python", "-c"]
    given = json.dumps([{**CONFIG, "seed": 7}, {step: of_step(step) for step in STEPS}])
    done = subprocess.run(
        [sys.executable, *alone, TRACKIO, given],
        cwd=place,
        env={**os.environ, "TRACKIO_DIR": str(place / "trackio")},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return place


@pytest.mark.parametrize("name", NAMES)
def test_the_metrics_of_each_logger(made: Path, name: str) -> None:
    asked = "SELECT step, value FROM metrics WHERE name = '{}' ORDER BY step"
    for metric in ("actor/entropy", "loss"):
        table = autotrace.open(made / name).sql(asked.format(metric))
        values = {step: pytest.approx(of_step(step)[metric], rel=1e-6) for step in STEPS}
        assert dict(zip(*(column.to_pylist() for column in table.columns), strict=True)) == values


@pytest.mark.parametrize("name", ["wandb", "mlflow", "mlruns", "trackio"])
def test_the_settings_of_each_logger_differ_in_the_value_that_changed(made: Path, name: str, tmp_path: Path) -> None:
    (source,) = autotrace.open(made / name).reader().sources
    settings = settings_of([], source.binds())
    assert {name.replace("/", "."): value for name, value in settings.items() if "versions" not in name} == (
        {"lr": "0.001", "actor.clip": "0.2", "seed": "7"}
    )
    if name == "wandb":
        assert settings["versions.msgspec"] == version("msgspec") and settings["versions.python"].endswith(
            platform.python_version()
        )


def test_a_changed_setting_of_an_untraced_run_is_the_first_difference(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "mlruns", tmp_path / "other")
    (changed,) = (tmp_path / "other").glob("*/*/params/lr")
    changed.write_text("0.01")
    done = CliRunner().invoke(main, ["diff", str(made / "mlruns"), str(tmp_path / "other"), "--json"])
    (first,) = json.loads(done.stdout)["differences"]
    assert (first["stage"], first["words"], first["here"], first["there"]) == ("configuration", "lr", "0.001", "0.01")


def test_the_commands_say_what_is_wrong_and_what_is_missing(made: Path, tmp_path: Path) -> None:
    for name in ("mine", "here"):
        (tmp_path / name).mkdir()
    place = str(made / "transformers")
    every = [["diagnose", place], ["open", place], ["steps", place], ["why", place], ["steps", place, "--json"]]
    diagnosed, opened, steps, why, as_json = reading.run(every, tmp_path / "here", tmp_path / "mine")
    assert not any(one["code"] for one in (diagnosed, opened, steps, why, as_json))
    assert "AT-ENTROPY-COLLAPSED" in diagnosed["out"] and "AT-ENTROPY-COLLAPSED" in steps["out"]
    assert "no rollouts: only metrics are here; start the training with autotrace-run" in diagnosed["err"]
    assert "metrics of trainer_state.json (1 file)" in opened["out"] and "loss" in steps["out"]
    assert "not recorded" not in opened["out"] and "show --worst" not in opened["out"]
    assert "autotrace steps " in opened["out"]
    assert json.loads(as_json["out"].splitlines()[0])["metrics"] == of_step(1)


def test_metrics_beside_rollouts_are_one_run(made: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    row = {"input": "user\nq\nassistant\n", "output": "a", "score": 1.0, "step": 1}
    (tmp_path / "dump" / "1.jsonl").write_text(json.dumps(row))
    (tmp_path / "experiment.jsonl").write_bytes((made / "verl" / "experiment.jsonl").read_bytes())
    (run,) = autotrace.open(tmp_path)
    assert run.steps() == [1] and len(list(run.trajectories())) == 1
    assert autotrace.open(tmp_path).sql("SELECT count(*) FROM metrics").columns[0].to_pylist() == [20]


def test_a_database_that_would_run_something_is_not_read(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT 'r' run_name, x step, '' metrics"
    for number, sql in enumerate((
        f"CREATE VIEW metrics AS {endless} FROM r",
        "CREATE TABLE metrics (run_name, step, id, metrics AS (hex(zeroblob(1000000000))))",
    )):  # fmt: skip
        with sqlite3.connect(tmp_path / f"{number}.db") as db:
            db.execute(sql)
        db.close()
        with pytest.raises(QueryError, match="no format"):
            autotrace.open(tmp_path / f"{number}.db")


def test_a_row_that_an_index_names_many_times_is_read_once(tmp_path: Path) -> None:
    """Another tree of entries stands in place of the index, and statistics that praise the index."""
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.executescript("""
            CREATE TABLE metrics (run_uuid, step, key, value, is_nan, timestamp);
            CREATE INDEX named ON metrics (timestamp) WHERE NOT is_nan;
            CREATE TABLE entries (timestamp, of, PRIMARY KEY (timestamp, of)) WITHOUT ROWID;
            INSERT INTO metrics VALUES ('r', 1, 'reward', 0.5, 0, 0);
            ANALYZE;
            DELETE FROM sqlite_stat1;
            INSERT INTO sqlite_stat1 VALUES ('metrics', NULL, '100000000'), ('metrics', 'named', '2 1');
            PRAGMA writable_schema = ON;
        """)
        db.executemany("INSERT INTO entries VALUES (?, 1)", [(number,) for number in range(20_000)])
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
        db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'named'", (roots["entries"],))
        db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'entries'", (roots["named"],))
    db.close()
    assert len(list(scalars._database(Opened(tmp_path, "mlflow.db")))) == 1
