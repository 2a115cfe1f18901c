"""A shipper goes when there is another one, and waits for who only reads."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from autotrace.config import exit_codes
from autotrace.run import layout
from autotrace.run.lock import ShipperLock
from autotrace.run.status import Status
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE


def test_a_shipper_that_finds_a_reader_waits_and_then_delivers(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    trajectory(process)
    process.exit()
    with ShipperLock(run, reading=True) as lock:
        assert lock.held
        shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)])
        while not (run / layout.SHIPPER_LOG).exists():
            time.sleep(0.02)
        time.sleep(1.0)  # longer than it waits for another shipper
        assert shipper.poll() is None
    assert shipper.wait(timeout=DEADLINE) == exit_codes.OK
    assert Status.read(run).backends["jsonl"].delivered == 1


def test_a_second_shipper_goes_and_a_reader_reads_what_there_is(tmp_path: Path) -> None:
    with ShipperLock(tmp_path, reading=True) as lock:
        assert lock.held
    with ShipperLock(tmp_path) as first, ShipperLock(tmp_path) as second, ShipperLock(tmp_path, reading=True) as reader:
        assert first.held and not second.held and not reader.held
