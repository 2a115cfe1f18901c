"""What MLflow's client reads is the same whichever way it was written: over its releases, SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
RELEASES = {"3.6.0": ["sqlalchemy<2.1"], "3.10.1": [], "3.16.0": []}
"""One for each way in which MLflow counts tokens, beside the one of ``tests/sinks/test_mlflow_tables.py``; with what it
does not say that it needs."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.mark.row("MLflow releases")
@pytest.mark.parametrize("release", list(RELEASES))
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_both_ways_leave_the_same(release: str, database: str, postgres: Postgres, tmp_path: Path) -> None:
    names = [f"{way}_{release.replace('.', '_')}" for way in ("one", "other")]
    if database == "sqlite":
        uris = [f"sqlite:///{tmp_path}/{name}.db" for name in names]
    else:
        uris = [postgres.uri(name, driver="psycopg2") for name in names]
    wanted = [f"mlflow=={release}", "psycopg2-binary", "opentelemetry-proto", "httpx", *RELEASES[release]]
    command = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--isolated", "--with-editable", str(ROOT)]
    for package in [*wanted, "polars"]:
        command += ["--with", package]
    command += ["python", str(ROOT / "tests/sinks/both_ways.py"), *uris]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["mlflow"] == release
    assert result["spans"][0] >= 20, "the tables were not used"
    assert result["differences"] == []
    assert result["libraries"] == [], "the shipper imports what MLflow's store never uses"
