"""What a run is made of before its command starts."""

from __future__ import annotations

import json
import time
from pathlib import Path

from autotrace.launch import run_setup
from autotrace.launch.options import Options
from tests.folders import modes
from tests.places import Place


def test_a_fresh_sqlite_store_is_there_before_the_command_starts(place: Place) -> None:
    code = (
        "import sqlite3; ask = sqlite3.connect('fresh.db').execute\n"
        "print(*ask('select count(*) from alembic_version').fetchone(), *ask('pragma journal_mode').fetchone())"
    )
    found = place.launch(["python", "-c", code], ["--backend", "mlflow", "--tracking-uri", "sqlite:///fresh.db"])
    assert found.stdout == "1 wal\n", found.stderr
    assert place.info()["tracking_uri"] == f"sqlite:///{place.cwd.resolve()}/fresh.db"


def test_only_the_owner_can_read_a_run(place: Place) -> None:
    place.launch(["python", "-c", ""])
    (run,) = place.runs()

    found = {run: run.stat().st_mode & 0o777, **modes(run)}
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}


def test_the_environment_of_the_command(place: Place) -> None:
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k[:6] in ('AUTOTR', 'MLFLOW')}))"
    found = json.loads(place.launch(["python", "-c", code]).stdout)
    (run,) = place.runs()

    assert found["AUTOTRACE"] == "1"
    assert found["AUTOTRACE_RUN_FOLDER"] == str(run.resolve())
    assert found["AUTOTRACE_RUN_ID"] == run.name
    assert Path(found["AUTOTRACE_PLAN"]).is_file()
    assert {"ray", "verl"} <= set(found["AUTOTRACE_MODULES"].split(","))
    assert found["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_the_names_of_runs_that_begin_in_one_second_sort_by_time(tmp_path: Path) -> None:
    names = []
    for _ in range(20):
        names.append(run_setup._folder(Options(run_dir=str(tmp_path), quiet=True)))
        time.sleep(0.001)
    assert names == sorted(names)


def test_a_start_compiles_nothing_that_was_compiled_before(place: Place) -> None:
    """The shipped specs are; PyYAML and what looks through packages would take longer than the rest of a start."""
    done = place.run([place.python, "-X", "importtime", place.launcher, "--backend", "jsonl", "--", "true"])
    assert done.returncode == 0 and "autotrace.launch.run_setup" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"yaml", "packaging", "tarfile", "autotrace.spec.drafts", "autotrace.spec.sources"}
