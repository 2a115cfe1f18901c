"""A shipper that was killed after reading and before deciding leaves every trajectory open in its state. A reader
decides on a copy, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.run.info import RunInfo
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from tests.ship.spools import Process, new_run, trajectory

COUNT = 40
EARLY = "the shipper ended early"


@pytest.fixture(params=[0, 1])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of ``COUNT`` trajectories whose shipper read everything, and decided nothing or one round of it."""
    run = new_run(tmp_path)
    process = Process(run)
    for number in range(COUNT):
        if number == COUNT // 2 and request.param:
            _read(run, decides=True)
        trajectory(process, step=number // 8, rollout=number % 8, uid=f"u{number // 8}", reward=float(number))
    process.exit()
    _read(run, decides=False)
    return run


def _read(run: Path, *, decides: bool) -> None:
    state = State.of_run(run)
    indexer = Indexer(state, run, RunInfo.read(run), ())
    while indexer.round():
        pass
    if decides:
        indexer.hurry()
        indexer.settle(over=False)
    state.close()


def call(*words: str) -> str:
    return CliRunner().invoke(main, [*words], catch_exceptions=False).output


def test_every_trajectory_is_complete_and_has_its_reward(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    reader = of_run(run)
    rows = reader.select(columns=("status", "reward", "complete"))
    assert [row.reward for row in rows] == [float(number) for number in range(COUNT)]
    assert {(row.status, row.complete) for row in rows} == {("OK", True)}
    status = reader.run.status()
    assert (status.open, status.trajectories) == (0, COUNT) and any(EARLY in note for note in status.notes)
    for command in ("ls", "diagnose", "status", "steps", "export"):
        assert EARLY in call(command, str(run), *(["--out", str(run.parent / "x")] if command == "export" else [])), (
            command
        )
    reader.close()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_nothing_is_said_once_the_run_was_shipped(run: Path) -> None:
    ship(run, once=True)
    assert EARLY not in call("ls", str(run)) + call("diagnose", str(run)) + call("status", str(run))
    assert of_run(run).run.status().trajectories == COUNT
