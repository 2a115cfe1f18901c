"""Messages about a run that ended in an unusual way: killed with its shipper, stopped by its own program, or just taken
up by another shipper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotrace.run import layout
from autotrace.run.info import find_runs
from autotrace.ship.readers import places
from autotrace.ship.shipper import ShipperLock, ship
from autotrace.view.open_runs import OpenRun
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run, trajectory

STOPS = """
import threading, autotrace
run = autotrace.start("list.yaml", run_dir="runs", backend="jsonl")
import work
inside, leave = threading.Event(), threading.Event()
thread = threading.Thread(target=work.rollout, args=(inside, leave))
thread.start()
inside.wait()
run.stop()
leave.set()
thread.join()
"""


@pytest.mark.parametrize("host", ["", "a-machine-that-is-gone"])
def test_no_process_of_a_dead_run_is_said_to_live(host: str, call: Call, runs: Path) -> None:
    run = new_run(runs)
    process = Process(run)
    trajectory(process)
    process.open(b"\x01" * 16, "trajectory")
    ship(run, once=True)
    written = {"state": "running", "living": 3, "host": host or os.uname().nodename, "updated_ns": 1}
    (run / layout.STATUS_JSON).write_text(json.dumps({**json.loads((run / layout.STATUS_JSON).read_text()), **written}))

    def told() -> list[object]:
        (listed,) = map(json.loads, call("runs", "--json", runs).stdout.splitlines())
        status = json.loads(call("status", "--json", run).stdout)["status"]
        page = OpenRun(places(run)[0]).state()
        return [listed["state"], status["state"], status["living"], page["state"], page["live"]]

    assert told() == ["running", "running", 1, "running", True]  # its shipper died
    process.die()
    assert told() == ["stopped", "stopped", 0, "stopped", False]
    written |= {"host": "another-node", "updated_ns": time.time_ns()}
    (run / layout.STATUS_JSON).write_text(json.dumps({**json.loads((run / layout.STATUS_JSON).read_text()), **written}))
    assert told() == ["running", "running", 3, "running", True]  # whose locks do not show here


def test_a_rollout_that_runs_when_its_program_stops_the_run_is_no_finding(call: Call, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def rollout(inside, leave):\n    inside.set()\n    leave.wait()\n")
    (tmp_path / "list.yaml").write_text("- {target: work.rollout, role: trajectory}\n")
    (tmp_path / "program.py").write_text(STOPS)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, capture_output=True)
    ((run,), _) = find_runs(tmp_path / "runs")
    (listed,) = map(json.loads, call("ls", "--json", run).stdout.splitlines())
    assert listed["status"] == "INTERRUPTED" and not listed["findings"], listed
    assert "AT-INTERRUPTED" not in call("diagnose", run).stdout


def test_a_second_shipper_that_comes_at_once_is_told_of_the_first(call: Call, runs: Path) -> None:
    run = new_run(runs)
    with ShipperLock(run) as lock:
        assert lock.held
        shipped = call("ship", run)
    assert shipped.exit_code and layout.STATUS_JSON not in shipped.output, shipped.output
    assert "another process has just begun to deliver this run" in shipped.output, shipped.output
    assert not (run / layout.STATUS_JSON).exists()
