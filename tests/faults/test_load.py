"""Loads that occur on a machine with other work: nothing is dropped, and the exit writes what waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotrace.ship.shipper import ship
from autotrace.spool.reader import SegmentReader, segments
from autotrace.spool.records import Close, Open
from tests.faults.conftest import ROOT, Start
from tests.faults.outcome import Outcome, outcome
from tests.ship.spools import new_run
from tests.waiting import DEADLINE


@pytest.fixture
def busy() -> Iterator[None]:
    """Every core of the machine has other work."""
    code = "while True: sum(range(1000))"
    siblings = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    yield
    for sibling in siblings:
        sibling.kill()
        sibling.wait()


@pytest.mark.parametrize("rate", [pytest.param(400, marks=pytest.mark.long), 1600])
def test_many_trajectories_with_long_prompts(run: Path, busy: None, note: Callable[..., None], rate: int) -> None:
    """128 at once, prompts of up to 7,500 tokens; the faster one asks for more than such a machine has."""
    command = [sys.executable, "-m", "tests.faults.agents", str(run), "150", str(rate)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["drops"] == {} and made["faults"] == {}
    prompts, closed = 0, 0
    for file in segments(run):
        reader = SegmentReader(run, file.name)
        while records := reader.read():
            found = [located.record for located in records]
            prompts += sum(isinstance(record, Open) and record.prompt is not None for record in found)
            closed += sum(isinstance(record, Close) and record.response is not None for record in found)
    assert prompts == closed == made["calls"] == 150 * 15
    assert ship(run, once=True).state == "done"
    delivered = Outcome(made["calls"], delivered=closed)
    note(f"128 trajectories, {rate} calls/s wanted", delivered, f"{made['calls_a_second']:.0f} calls/s, busy machine")


def test_exit_under_backlog(tmp_path: Path, busy: None, start: Start, note: Callable[..., None]) -> None:
    """2,000 calls with 200-message arguments, then the end: it waits as long as there is progress."""
    run = new_run(tmp_path, "backlog", drain_timeout=60.0)
    process = start("backlog", 250, folder=run)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and not err
    found = outcome(run)
    assert found.row() == (2000, 2000, 0, 0, 0) and set(found.drops) <= {"drop:content"}
    note("exit under backlog", found, f"{found.drops.get('drop:content', 0)} large arguments left out, counted")
