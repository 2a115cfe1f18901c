"""A trajectory that hangs while the run goes on: found, with the call that it is in."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from autotrace.insight.diagnose import diagnose
from autotrace.query import findings
from autotrace.run.lock import ShipperLock
from autotrace.ship.run_reader import RunReader
from autotrace.ship.shipper import Shipper
from tests.ship.spools import PROMPT, Process, attributes, new_run, trajectory


@pytest.mark.parametrize("living", [True, False])
def test_what_hangs_is_named_with_the_call_that_it_is_in(tmp_path: Path, living: bool) -> None:
    run = new_run(tmp_path, main_pid=os.getpid() if living else 0)
    process = Process(run)  # its clock stands in 2023
    for rollout in range(3):
        trajectory(process, rollout=rollout, reward=float(rollout % 2))
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(rollout=3))
    llm = process.open(trace, "llm", root, PROMPT)
    process.close(trace, llm, [7, 8])
    tool = process.open(trace, "tool", root)
    with ShipperLock(run):
        shipper = Shipper(run)
        deadline = time.monotonic() + 60
        while not (run / "trajectories.jsonl").exists() or len((run / "trajectories.jsonl").open().readlines()) < 3:
            shipper.step()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        shipper.write("running" if living else "done")
        with contextlib.closing(RunReader.open(run)) as reader:
            found = {finding.code: finding for finding in diagnose(findings.steps(reader))}
        shipper.close()
    process.die()
    assert tool
    assert ("AT-HUNG" in found) is living
    if living:
        (place,) = found["AT-HUNG"].places
        assert (place.trace_id, place.turn) == (trace.hex(), 1)
        assert place.note.startswith("in ToolAgentLoop._call_tool for ")
