"""``autotrace ship``: what a run left on disk is delivered, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotrace.config import environment as env
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory


def test_everything_is_delivered_and_twice_in_a_row_nothing_twice(call: Call, run: Path) -> None:
    for _ in range(2):
        found = call("ship", run)
        assert found.exit_code == 0, found.output
        assert "jsonl: 5 delivered, 0 left" in found.output
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    assert len({json.loads(line)["trace_id"] for line in lines}) == len(lines) == 5


def test_a_backend_that_cannot_be_reached_leaves_everything_and_says_so(call: Call, runs: Path) -> None:
    folder = new_run(runs, backends=["mlflow"], tracking_uri="http://127.0.0.1:9")
    process = Process(folder)
    trajectory(process)
    process.exit()

    found = call("ship", folder)
    assert found.exit_code == 1
    assert "mlflow: 0 delivered, 1 left" in found.output
    assert call("ship", folder, "--backend", "jsonl").exit_code == 1
    assert len((folder / "trajectories.jsonl").read_text().splitlines()) == 1


def test_another_place_is_remembered(call: Call, runs: Path, tmp_path: Path) -> None:
    folder = new_run(runs, backends=["mlflow"], tracking_uri="http://127.0.0.1:9")
    process = Process(folder)
    trajectory(process)
    process.exit()

    found = call("ship", folder, "--tracking-uri", "sqlite:///mine.db")
    assert found.exit_code == 0, found.output
    info = json.loads((folder / "run.json").read_text())
    assert info["tracking_uri"] == f"sqlite:///{tmp_path / 'mine.db'}"
    assert call("ship", folder).exit_code == 0


def test_a_place_for_the_tables_adds_their_backend(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env.TABLES, "")  # which the command sets
    found = call("ship", run, "--tables", "lake")
    assert found.exit_code == 0 and f"parquet: 5 delivered, 0 left ({tmp_path / 'lake'})" in found.output, found.output
    assert len(list((tmp_path / "lake").glob("*/*/tables/trajectories/*.parquet"))) == 1
    info = json.loads((run / "run.json").read_text())
    assert (info["tables"], info["backends"]) == (str(tmp_path / "lake"), ["jsonl", "parquet"])
    assert "--tables of autotrace ship" in call("status", run).output
    refused = call("ship", run, "--tables", "s3://")
    assert (refused.exit_code, refused.output) == (
        2,
        "autotrace: s3://: a bucket is missing; write s3://BUCKET/FOLDER\n",
    )


def test_a_directory_store_is_refused_with_the_remedy(call: Call, run: Path) -> None:
    found = call("ship", run, "--backend", "mlflow", "--tracking-uri", "./mlruns")
    assert found.exit_code == 2
    assert "sqlite:" in found.output


def test_an_unknown_backend(call: Call, run: Path) -> None:
    found = call("ship", run, "--backend", "jaeger")
    assert (found.exit_code, "there is no backend 'jaeger'" in found.output) == (2, True)
