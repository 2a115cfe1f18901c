"""A traced process ends at any moment, in any way: what it had written is whole, what it had not is young."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import some
from tests.faults.conftest import ROOT, Start
from tests.faults.outcome import Outcome, in_spool, ledger, ledgers, outcome, slowness
from tests.ship.spools import new_run
from tests.waiting import DEADLINE, until

YOUNG = 1.0
"""Seconds: the flush interval is 0.2. A machine with other work lets a thread wait; what is lost may be older by twice
that."""


def _together(outcomes: list[Outcome]) -> Outcome:
    total = Outcome(sum(each.written for each in outcomes))
    for each in outcomes:
        total.recovered += each.recovered
        total.delivered += each.delivered
        total.duplicated += each.duplicated
        total.torn += each.torn
    return total


@pytest.mark.parametrize("kind", some(["SIGKILL", "SIGTERM"], "SIGKILL"))
def test_killed_at_a_random_moment(tmp_path: Path, start: Start, note: Callable[..., None], kind: str) -> None:
    chance = random.Random(kind)
    found, oldest, waited = [], 0.0, 0.0
    for number in range(6):
        run = new_run(tmp_path, f"run-{number}")
        process = start("endless", folder=run)
        until(lambda run=run: bool(in_spool(run)[0]))  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.4))
        at = time.monotonic_ns()
        process.send_signal(getattr(signal, kind))
        assert process.wait(DEADLINE) == -getattr(signal, kind)
        found.append(outcome(run))
        assert found[-1].recovered > 0 and found[-1].duplicated == 0
        assert found[-1].delivered == found[-1].recovered
        oldest = max([oldest, *((at - when) / 1e9 for when in found[-1].lost.values())])
        waited = max(waited, slowness(run, {process.pid: at}))
    assert oldest < YOUNG + 2 * waited
    note(f"{kind}, 6 random moments", _together(found), f"lost: at most {oldest:.2f} s old")


def test_os_exit(tmp_path: Path, start: Start, note: Callable[..., None]) -> None:
    found, oldest, waited = [], 0.0, 0.0
    for number in (50, 211, 400):
        run = new_run(tmp_path, f"run-{number}")
        process = start("leave", number, folder=run)
        assert process.wait(DEADLINE) == 3
        last = max(ledger(run).values())
        found.append(outcome(run))
        oldest = max([oldest, *((last - when) / 1e9 for when in found[-1].lost.values())])
        waited = max(waited, slowness(run, {process.pid: last}))
        assert found[-1].duplicated == 0 and found[-1].delivered == found[-1].recovered
    assert oldest < YOUNG + 2 * waited
    note("os._exit, 3 times", _together(found), f"lost: at most {oldest:.2f} s old")


def test_no_memory_left(run: Path, start: Start, note: Callable[..., None]) -> None:
    """Allocations fail, the flusher's too, and the process aborts: what is in the spool is whole."""
    process = start("out_of_memory")
    # SIGSEGV: CPython 3.11 itself, where ContextVar.set finds no memory; SIGALRM: it handles an exception for ever
    ends = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGALRM)
    assert process.wait(DEADLINE) in ends, process.stderr and process.stderr.read()
    found = outcome(run)
    assert found.recovered >= 160 and found.duplicated == 0 and found.delivered == found.recovered
    note("out of memory, abort()", found, "lost: while nothing could be allocated")


def test_ray_kill(tmp_path: Path, note: Callable[..., None]) -> None:
    """How every veRL actor ends: three of them, at random moments, in a Ray of their own."""
    run = new_run(tmp_path)
    command = [sys.executable, "-m", "tests.faults.ray_program", str(run), "3"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": str(ledgers(run)), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr[-3000:]
    killed = {int(pid): int(at) for pid, at in map(str.split, done.stdout.strip().splitlines()[-3:])}
    found = outcome(run)
    assert {number >> 32 for number in ledger(run)} == set(killed)
    oldest = max([0.0, *((killed[number >> 32] - when) / 1e9 for number, when in found.lost.items())])
    assert found.recovered > 0 and found.duplicated == 0 and found.delivered == found.recovered
    assert oldest < YOUNG + 2 * slowness(run, killed)
    note("ray.kill, 3 actors", found, f"lost: at most {oldest:.2f} s old")


def test_an_ordinary_end_loses_nothing(run: Path, start: Start, note: Callable[..., None]) -> None:
    assert start("some", 50).wait(DEADLINE) == 0
    found = outcome(run)
    assert found.row() == (400, 400, 0, 0, 0)
    note("ordinary exit", found)


def test_fork_in_the_middle_of_a_trajectory(run: Path, start: Start, note: Callable[..., None]) -> None:
    process = start("fork")
    assert process.wait(DEADLINE) == 0, process.stderr and process.stderr.read()
    found = outcome(run)
    assert found.row() == (2 * 8 + 1 + 5 * 8, 57, 0, 0, 0)
    assert len(list((run / "spool").iterdir())) == 2
    note("fork in a trajectory", found)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_many_processes_at_once(run: Path, start: Start, note: Callable[..., None], count: int) -> None:
    waiting = [start("some", 3) for _ in range(count)]
    for process in waiting:
        assert process.wait(DEADLINE) == 0
    found = outcome(run)
    assert found.row() == (count * 24, count * 24, 0, 0, 0)
    assert len(list((run / "spool").iterdir())) == count
    note(f"{count} processes at once", found)


def test_two_runs_with_one_folder(run: Path, start: Start, note: Callable[..., None]) -> None:
    """Two launchers that were given the same folder: their processes never share a file, so nothing mixes."""
    waiting = [start("some", 20) for _ in range(2)]
    for process in waiting:
        assert process.wait(DEADLINE) == 0
    found = outcome(run)
    assert found.row() == (320, 320, 0, 0, 0)
    note("two runs in one folder", found)
