"""Disks that are full, read-only or slow, and limits of our own: the host goes on, what is refused is counted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotrace.config.plan import Plan, Settings
from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.shipper import ship
from autotrace.ship.store.delivery_queue import DeliveryQueue
from autotrace.ship.store.state import State
from autotrace.spool.reader import segments
from tests.cases import some
from tests.faults.conftest import Start
from tests.faults.outcome import Outcome, at_backend, in_spool, ledger, outcome
from tests.ship.spools import new_run
from tests.waiting import DEADLINE


def _ends_well(process: subprocess.Popen[str], seconds: float = DEADLINE) -> str:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    return out


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    ).returncode:
        pytest.fail("needs the right to mount a file system (root)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("signal", some(["ignored", "default", "heard"], "ignored"))
def test_disk_full_and_then_room_again(run: Path, start: Start, note: Callable[..., None], signal: str) -> None:
    """``RLIMIT_FSIZE`` fails a write in the middle, as a full disk does: what was half written is taken back, held and
    written once there is room; the reader never sees a torn record, and the host no signal (``SIGXFSZ``)."""
    _ends_well(start("file_size", 100_000, signal))
    found = outcome(run)
    assert found.drops == {} and found.lost == {} and found.duplicated == 0 and found.torn == 0
    assert found.delivered == found.written == 110 * 8
    note("disk full for a second", found, "held in memory meanwhile")


def test_disk_full_for_good(tiny: Path, tmp_path: Path, start: Start, note: Callable[..., None]) -> None:
    run = new_run(tiny, "run")
    _ends_well(start("some", 400, folder=run))
    found = Outcome(len(ledger(run)))
    calls, found.torn, _ = in_spool(run)
    found.delivered = found.recovered = sum(number in calls for number in ledger(run))
    assert found.torn == 0 and 0 < found.recovered < found.written
    assert max(calls.values()) == 1
    note("disk full for good", found, "lost: all after the disk was full")


def test_a_disk_that_was_full_is_named_wherever_a_person_looks(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def task(number): return 'x' * 200\n")
    (tmp_path / "spec.yaml").write_text("- {target: work.task, role: trajectory}\n")
    calls = "import work; [work.task(number) for number in range(3000)]"
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--drain-timeout", "1"]
    done = subprocess.run(
        [*launcher, "--run-dir", str(tiny), "--spec", "spec.yaml", "--", sys.executable, "-c", calls],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=True,
    )  # fmt: skip
    (run,) = (path for path in tiny.iterdir() if path.is_dir())
    assert f"records lost: disk full: {run};" in done.stderr and f"(the disk of {run} is full)" in done.stderr
    for command in ("ls", "status", "diagnose"):
        told = subprocess.run(
            [sys.executable, "-m", "autotrace.cli.main", command, str(run)],
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert told.stdout.startswith(f"! records lost: disk full: {run}\n"), (command, told)


def test_read_only_run_folder(run: Path, start: Start, note: Callable[..., None]) -> None:
    """The spool folder cannot be made: the program runs as if nothing were there."""
    (run / "spool").rmdir()
    (run / "spool").write_text("in the way")  # root may write to a read-only folder, but not into a file
    process = start("some", 20)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and "Traceback" not in err
    assert len(ledger(run)) == 160
    note("run folder not writable", Outcome(160), "host unaffected, one log line")


def test_read_only_file_system(start: Start, tiny: Path) -> None:
    run = new_run(tiny, "run")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    out = _ends_well(start("read_only", folder=run))
    assert "fault:spool" in out


def test_slow_writes_do_not_slow_the_host(run: Path, start: Start, note: Callable[..., None]) -> None:
    """Each write ends when ten more trajectories were made: would one wait for a write, neither would end."""
    waited = int(_ends_well(start("slow_writes", 10)))
    found = outcome(run)
    assert waited >= 5
    assert found.lost == {} and found.duplicated == 0
    note("writes that stand still", found, f"{waited} writes ended because calls went on")


def test_spool_limit_refuses_whole_trajectories(run: Path, start: Start, note: Callable[..., None]) -> None:
    limit = 3_000_000
    refused = int(_ends_well(start("bounded", limit)))
    assert refused > 0
    size = sum(path.stat().st_size for path in (run / "spool").iterdir())
    assert 0.7 * limit < size < 1.5 * limit
    found = outcome(run)
    assert found.drops == {"drop:spool_limit": refused} or found.drops["drop:spool_limit"] <= refused
    lost_trajectories = {number // 8 for number in found.lost}
    assert found.duplicated == 0 and len(found.lost) == 8 * len(lost_trajectories), "half a trajectory was recorded"
    note("--spool-limit reached", found, f"lost: {refused} whole trajectories, counted")


def test_spool_limit_makes_room_by_what_was_delivered(tmp_path: Path, start: Start, note: Callable[..., None]) -> None:
    """The run goes on for several times its limit: what was delivered goes, and everything is recorded."""
    limit = 1_000_000
    main = subprocess.Popen(["sleep", "600"])
    run = new_run(tmp_path, "limited", main_pid=main.pid)
    (run / layout.PLAN_JSON).write_text(Plan((), Settings(spool_limit=limit)).dumps())
    shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)])
    try:
        process = start("paced", limit, 450, folder=run)
        most = 0
        while process.poll() is None:
            most = max(most, sum(file.size for file in segments(run)))
            time.sleep(0.05)
        refused = int(_ends_well(process))
    finally:
        main.kill()
        main.wait()
        assert shipper.wait(DEADLINE) == 0
    noted, arrived, status = ledger(run), at_backend(run), Status.read(run)
    found = Outcome(len(noted), delivered=sum(number in arrived for number in noted), drops=status.drops)
    found.duplicated = sum(count - 1 for count in arrived.values())
    assert (found.written, found.duplicated) == (3600, 0)
    assert found.written - found.delivered == 8 * refused, "something else than whole trajectories is missing"
    assert refused == 0, "there was room for all of them"  # 201 of 450 without a shipper
    assert most < 1.2 * limit and not status.skipped
    with State.of_run(run) as state:  # what belongs to its MLflow run becomes known late: nothing is sent in pieces
        DeliveryQueue(state).add_again("jsonl", rejected=False)
    assert ship(run, once=True).state == "done"
    assert at_backend(run) == arrived
    note("--spool-limit, with a shipper", found, f"{most / 1e6:.1f} MB at most of 1.0")
