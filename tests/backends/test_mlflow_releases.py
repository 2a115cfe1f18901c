"""MLflow's client reads the same whether rows or MLflow's store class wrote a trajectory, over MLflow's releases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASES = {"3.6.0": ["sqlalchemy<2.1"], "3.10.1": [], "3.16.0": []}
"""One for each way in which MLflow counts tokens, beside the release of ``tests/sinks/test_mlflow_own_file.py``; with
requirements that the release does not declare."""


@pytest.mark.row("MLflow releases")
@pytest.mark.parametrize("release", list(RELEASES))
def test_both_ways_leave_the_same(release: str, tmp_path: Path) -> None:
    uris = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other")]
    wanted = [f"mlflow=={release}", "opentelemetry-proto", "httpx", *RELEASES[release]]
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
