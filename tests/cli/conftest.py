"""A folder with runs, and the command line called in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main
from tests.ship.spools import Process, new_run, trajectory

Call = Callable[..., Result]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory, in the working folder."""
    monkeypatch.setenv("AUTOTRACE", "")  # `autotrace ship` sets it, and the next test would start untraced
    for name in [name for name in os.environ if name.startswith(("AUTOTRACE", "MLFLOW"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "autotrace-runs"
    folder.mkdir()
    return folder


@pytest.fixture
def call(runs: Path) -> Call:
    """``call("ls", ...)``: the result of ``autotrace ls ...``."""

    def run(*words: str | Path) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)

    return run


@pytest.fixture
def run(runs: Path) -> Path:
    """A finished run: two steps of two rollouts, one validation, rewards 0.25 to 1."""
    folder = new_run(runs, "20261121-064412-3f9c1a")
    process = Process(folder)
    for step in (1, 2):
        for rollout in (0, 1):
            trajectory(process, step=step, rollout=rollout, uid=f"u{step}", reward=0.25 * (2 * step + rollout - 1))
    trajectory(process, step=2, uid="val", validate=True, reward=None)
    process.exit()
    return folder
