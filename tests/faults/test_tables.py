"""The tables of a run whose shipper is killed again and again, or whose disk is full: each trajectory is there once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotrace.run.status import Status
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from tests.faults.conftest import ROOT
from tests.faults.outcome import Outcome
from tests.ship.spools import Process, new_run, trajectory
from tests.tables.reading import committed, rows, trajectories
from tests.tables.test_rebuild import fields
from tests.waiting import until

KILLS, AT_ONCE = 12, 40
"""How often the shipper is killed, and how many trajectories are written in between."""


def shipper(run: Path) -> subprocess.Popen[bytes]:
    """A shipper process."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)], env=environ)


def outcome(run: Path, made: set[bytes]) -> Outcome:
    """Of trajectories, not of calls."""
    there = [row["trace_id"] for row in rows(run)]
    found = Outcome(len(made), recovered=len(made), delivered=len({*there} & {trace.hex() for trace in made}))
    found.duplicated = len(there) - len({*there})
    return found


def same_as_the_spool(run: Path) -> None:
    """What is in the tables is what the segments make."""
    of_tables = trajectories(run)
    (run / "tables").rename(run / "tables.away")
    reader = of_run(run)
    for id, one in of_tables.items():
        expected = fields(reader.load(id))
        assert {name: value for name, value in fields(one).items() if name != "version"} == {
            name: value for name, value in expected.items() if name != "version"
        }
    reader.close()
    (run / "tables.away").rename(run / "tables")


def test_a_shipper_that_is_killed_again_and_again(tmp_path: Path, note: Callable[..., None]) -> None:
    run, made, seed = new_run(tmp_path, main_pid=os.getpid()), set[bytes](), random.Random(7)
    process, batches = Process(run), []
    for number in range(KILLS):
        begun = shipper(run)
        before = committed(run).batch
        for _ in range(AT_ONCE):
            made.add(trace := trajectory(process, uid=f"u{len(made)}", reward=None))
            process.fact("reward", 0.5, trace)
        until(lambda: begun.poll() is not None or committed(run).batch > before, (OSError,))  # noqa: B023
        for trace in seed.sample(sorted(made), 5):
            process.fact("advantage", float(number), trace)  # late: its facts are written again
        time.sleep(seed.random() * 1.5)  # it is at the next commit by then, or before it, or at a compaction
        begun.kill()
        begun.wait()
        batches.append(committed(run).batch)
    assert batches == sorted(batches) and batches[-1] >= KILLS
    process.exit()
    assert ship(run, once=True).state == "done"
    found = outcome(run, made)
    note("SIGKILL of the shipper, its tables", found, f"{KILLS} kills, trajectories")
    assert found.row() == (KILLS * AT_ONCE, KILLS * AT_ONCE, 0, 0, 0)
    same_as_the_spool(run)


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, note: Callable[..., None]) -> None:
    """The tables are on a file system of their own, too small for them at first."""
    run, made = new_run(tmp_path, main_pid=os.getpid()), set[bytes]()
    process = Process(run)
    (run / "tables").mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        mount("-t", "tmpfs", "-o", "size=400k", "tmpfs", str(run / "tables"))
        stack.callback(lambda: subprocess.run(["umount", "-l", str(run / "tables")], check=True))
        begun = shipper(run)
        stack.callback(begun.kill)
        for number in range(100):  # some fit
            made.add(trajectory(process, uid=f"u{number}"))
        until(lambda: len(rows(run)) == 100)
        while "No space left" not in (Status.read(run).error or ""):
            for _ in range(100):
                made.add(trajectory(process, uid=f"v{len(made)}", trace=os.urandom(16)))
            time.sleep(0.5)
        there = rows(run)
        assert 100 <= len(there) < len(made) and len({row["trace_id"] for row in there}) == len(there)
        mount("-o", "remount,size=64m", str(run / "tables"))
        until(lambda: len(rows(run)) == len(made))
        begun.kill()
        begun.wait()
        process.exit()
        assert ship(run, once=True).state == "done"
        found = outcome(run, made)
        note("disk full while tables are written", found, "kept in the spool meanwhile, trajectories")
        assert found.row() == (len(made), len(made), 0, 0, 0)


def mount(*arguments: str) -> None:
    if subprocess.run(["mount", *arguments], capture_output=True).returncode:
        pytest.fail("needs the right to mount a file system (root)")
