"""The tables of a run whose shipper is killed again and again, or at each change of a file, or whose disk is full: each
trajectory is there once."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotrace.run.status import Status
from autotrace.ship.readers import of_run
from autotrace.ship.retention import Retention
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.spool.reader import segments
from autotrace.tables.commits import FILE
from autotrace.tables.storage import StorageError
from autotrace.tables.writer import TableWriter
from autotrace.trajectory.model import Trajectory
from tests.faults.conftest import ROOT
from tests.faults.outcome import Outcome
from tests.kills import in_child, killed_everywhere
from tests.ship.spools import Process, new_run, trajectory
from tests.ship.test_retention import assembled, everything, planned
from tests.ship.test_shipper import delivered
from tests.tables.reading import committed, rows, trajectories
from tests.tables.test_rebuild import fields
from tests.tables.test_writer import RUN, changed, compacted, made, same, small
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


# -- killed at each change of a file -----------------------------------------------------------------------------------

Note = Callable[..., None]


class Kills:
    """Counts trajectories over all kills of one work, for the row about it."""

    def __init__(
        self, folder: Path, work: Callable[[Path], Any], check: Callable[[Path, bool], tuple[int, int]], every: int
    ) -> None:
        """``check``: how many trajectories there must be after a kill, and how many there are. ``every``: see
        ``killed_everywhere``."""
        self.outcome = Outcome(0)
        self._check = check
        self.number = killed_everywhere(folder, work, self._after, every)

    def _after(self, at: Path, whole: bool) -> None:
        expected, there = self._check(at, whole)
        self.outcome.written += expected
        self.outcome.delivered += there
        shutil.rmtree(at)


some_or_each = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
"""One of three kills, and all of them."""


def named(at: Path) -> set[str]:
    """The files that count."""
    return {Path(path).name for of in committed(at).files.values() for path in of}


def added(new: list[Trajectory], at: Path) -> None:
    TableWriter(at, RUN).write(new)


@some_or_each
def test_a_commit_that_is_killed_anywhere_is_there_whole_or_not_at_all(tmp_path: Path, note: Note, every: int) -> None:
    new = [made(sample=18), changed()]

    def check(at: Path, whole: bool) -> tuple[int, int]:
        found = {one.trace_id: one.version for one in trajectories(at).values()}
        assert found in ([{made().trace_id: 1}] if not whole else []) + [{made().trace_id: 2, new[0].trace_id: 1}]
        added(new, at)
        same(at, *new)
        assert {path.name for path in at.rglob("*") if path.is_file()} == named(at) | {FILE}
        return len(new), len(rows(at))

    added([made()], tmp_path / "before")
    kills = Kills(tmp_path / "before", partial(added, new), check, every)
    note("SIGKILL in a commit, at each call", kills.outcome, f"{kills.number} kills, trajectories")
    assert kills.number > 15


@some_or_each
def test_a_compaction_that_is_killed_anywhere_loses_nothing(tmp_path: Path, note: Note, every: int) -> None:
    small(tmp_path / "before")
    expected = {id: fields(one) for id, one in trajectories(tmp_path / "before").items()}

    def check(at: Path, whole: bool) -> tuple[int, int]:
        assert {id: fields(one) for id, one in trajectories(at).items()} == expected
        compacted(at)
        assert {id: fields(one) for id, one in trajectories(at).items()} == expected
        assert all(len(of) == 1 for of in committed(at).files.values())
        assert {path.name for path in at.rglob("*") if path.is_file()} == named(at) | {FILE}
        return len(expected), len(rows(at))

    kills = Kills(tmp_path / "before", compacted, check, every)
    note("SIGKILL in a compaction, at each call", kills.outcome, f"{kills.number} kills, trajectories")
    assert kills.number > 30


def segmented(parent: Path) -> Path:
    """A run that is delivered and may delete its segments now: four, two of them with parts of one trajectory."""
    folder = planned(new_run(parent, "before"), keep_spool=True)
    process, other = Process(folder), Process(folder, "node-2-bb")
    for number in range(3):
        trace = trajectory(process, uid=f"u{number}", reward=None)
        other.fact("reward", number / 2, trace)
        process.rotate() if number == 0 else None
    root = process.open(b"s" * 16, "trajectory", attributes={"step": 1, "uid": "split"})
    tool = process.open(b"s" * 16, "tool", root)
    process.rotate()
    process.close(b"s" * 16, tool, output="4")
    process.close(b"s" * 16, root)
    process.exit()
    other.exit()
    assert ship(folder, once=True).state == "done" and len(segments(folder)) == 4
    return planned(folder)


def removed(at: Path) -> None:
    with contextlib.closing(State.of_run(at)) as state:
        Retention(state, at, lambda _: False).make_room(over=True)


@some_or_each
def test_the_removal_of_segments_that_is_killed_anywhere(tmp_path: Path, note: Note, every: int) -> None:
    before = segmented(tmp_path)
    whole, lines, to_backends = everything(before), delivered(before), assembled(before)
    left = set()

    def check(at: Path, ended: bool) -> tuple[int, int]:
        left.add(len(segments(at)))
        assert everything(at) == whole and assembled(at) == to_backends
        assert ship(at, once=True).state == "done"
        assert not segments(at), "a second pass removes the rest"
        assert everything(at) == whole and assembled(at) == to_backends and delivered(at) == lines
        return len(whole), len(rows(at))

    kills = Kills(before, removed, check, every)
    note("SIGKILL while segments are removed", kills.outcome, f"{kills.number} kills, trajectories")
    assert left == {0, 1, 2, 3, 4} and kills.number > 4 * len(("BEGIN", "UPDATE", "COMMIT", "unlink"))


# -- full disks --------------------------------------------------------------------------------------------------------


def full(work: str, at: Path, limit: int, kept: dict[str, Any]) -> None:
    tables, failed = TableWriter(at, RUN), False
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            tables.write([made(sample=9)]) if work == "write" else tables.compact(everything=True)
        except StorageError as error:
            assert "File too large" in str(error)
            failed = True
        assert {id: fields(one) for id, one in trajectories(at).items() if id in kept} == kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sys.exit(3 if failed else 0)


@pytest.mark.parametrize(("work", "row"), [("write", "in a commit"), ("compact", "in a compaction")])
def test_a_disk_that_is_full_at_any_byte(tmp_path: Path, work: str, row: str, note: Note) -> None:
    """``RLIMIT_FSIZE`` fails a write in the middle, as a full disk does."""
    small(tmp_path / "whole")
    kept = {id: fields(one) for id, one in trajectories(tmp_path / "whole").items()}
    sizes = [path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    failures, outcome = 0, Outcome(0)
    for limit in [*range(1, max(sizes), max(sizes) // 12), *range(min(sizes), min(sizes) + 400, 67)]:
        at = tmp_path / f"{work}{limit}"
        shutil.copytree(tmp_path / "whole", at)
        code = in_child(full, work, at, limit, kept)
        assert code in (0, 3)
        failures += code == 3
        found = trajectories(at)
        assert len(found) == len(kept) + (work == "write")
        TableWriter(at, RUN).write([made(sample=9)])
        outcome.written += len(kept) + 1
        outcome.delivered += len(trajectories(at))
    note(f"disk full {row}, at any byte", outcome, f"{failures} full disks, trajectories")
    assert failures > 6 and outcome.delivered == outcome.written


def removed_on_a_full_disk(limit: int, at: Path) -> None:
    with contextlib.closing(State.of_run(at)) as state:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        Retention(state, at, lambda _: False).make_room(over=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_disk_that_is_full_while_segments_are_removed(tmp_path: Path, note: Note) -> None:
    before = segmented(tmp_path)
    whole, outcome, left = everything(before), Outcome(0), set()
    for limit in (1, 10_000, 30_000, 60_000, 90_000, 1_000_000):
        at = tmp_path / str(limit)
        shutil.copytree(before, at)
        assert in_child(removed_on_a_full_disk, limit, at) == 0
        left.add(len(segments(at)))
        assert everything(at) == whole
        assert ship(at, once=True).state == "done" and not segments(at)
        assert everything(at) == whole
        outcome.written += len(whole)
        outcome.delivered += len(rows(at))
    note("disk full while segments are removed", outcome, "trajectories")
    assert {0, 4} < left and outcome.delivered == outcome.written


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
