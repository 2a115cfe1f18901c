"""When a trace is complete: the end of its root ends it, whatever its root left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autotrace.ship.index import open_traces
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper, ship
from tests.ship.spools import Process, attributes, new_run
from tests.waiting import DEADLINE, until

PROGRAM = Path(__file__).parent / "late_worker.py"
SPEC = "- target: __main__.Agent.run\n  role: trajectory\n- __main__.Agent.poll\n"


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_trajectory_is_delivered_while_a_worker_that_it_started_lives(tmp_path: Path, kind: str) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    launch = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--run-dir", "runs"]
    command = [*launch, "--spec", "spec.yaml", sys.executable, str(PROGRAM), kind, "stop"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)

    def delivered() -> list[dict[str, Any]]:
        lines = [line for path in tmp_path.glob("runs/*/trajectories.jsonl") for line in path.open()]
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last line may just be written

    def rollouts() -> dict[str, list[dict[str, Any]]]:
        spans = [trace["spans"] for trace in delivered() if trace["spans"][0]["role"] == "trajectory"]
        return {root["inputs"]["question"]: [root, *below] for root, *below in spans}

    def later() -> list[dict[str, Any]]:
        return [trace["spans"][0] for trace in delivered() if trace["spans"][0]["role"] != "trajectory"]

    try:
        until(lambda: len(rollouts()) == 2 and len(later()) > 100)
        assert process.poll() is None, "the worker is still at work"
        (tmp_path / "stop").touch()
        _, stderr = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert "trajectories to jsonl" in stderr, stderr
    first, second = rollouts()["first"], rollouts()["second"]
    assert first[0]["status"] == "OK" and first[0]["output"] == "FIRST" and len(second) == 1
    ended = first[0]["end_ns"]
    assert all(span["start_ns"] <= ended for span in first), "a call that begins later is a trace of its own"
    assert {span["name"] for span in later()} == {"Agent.poll"} and all(span["start_ns"] >= ended for span in later())


def test_a_call_that_still_runs_is_waited_for_but_not_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_traces, "ROOT_GRACE", 1.5)
    run = new_run(tmp_path, main_pid=os.getpid())
    process, trace = Process(run), b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    slow = process.open(trace, "tool", root)
    process.close(trace, root, output="done")
    shipper = Shipper(run)
    ended = time.monotonic()
    try:
        while not (run / "trajectories.jsonl").exists():
            shipper.step()
            process.count({}, {})  # never silent
            assert time.monotonic() < ended + 60
            time.sleep(0.05)
        assert time.monotonic() - ended >= 1.5
        process.close(trace, slow, output="late")
        process.exit()
    finally:
        shipper.close()
    ship(run, once=True)
    versions = [json.loads(line) for line in (run / "trajectories.jsonl").open()]
    assert [trace["spans"][1]["status"] for trace in versions] in (["INTERRUPTED", "OK"], ["OK"])
    assert versions[-1]["spans"][1]["output"] == "late"


def test_late_calls_beyond_the_bound_stay_out_also_for_a_shipper_that_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotrace.ship.index import traces

    for module in (open_traces, traces):
        monkeypatch.setattr(module, "MAX_LATE_CALLS", 3)
    run = new_run(tmp_path)
    process, trace = Process(run), b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    process.close(trace, root)
    spans = [process.open(trace, "tool", root) for _ in range(5)]
    process.close(trace, spans[0])
    process.exit()
    ship(run, once=True)

    late = Process(run, "node-9-dd")
    for span in spans:
        late.close(trace, span, output="late")
    late.close(trace, late.open(trace, "tool", root))
    late.exit()
    status = ship(run, once=True)
    assert status.skipped == {"late calls beyond the first 3 of a trajectory": 2 + 1}
    reader = of_run(run)
    try:
        shown = reader.load(trace.hex())
        assert [span.output for span in shown.spans] == [None] * 4, "nothing more is read of it"
        assert reader.select(roots=True)[0].late_spans == 3
    finally:
        reader.close()


def test_what_was_delivered_before_its_root_was_read_has_no_late_calls(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    trace, there = b"t" * 16, Process(run, "node2-2-bb")
    there.close(trace, there.open(trace, "tool", parent=7))
    there.exit()
    ship(run, once=True)

    here = Process(run, "node1-1-aa")  # its segment arrives when the other node's part is delivered
    root = here.open(trace, "trajectory", attributes=attributes())
    here.at += 1_000_000_000
    here.close(trace, here.open(trace, "tool", root))
    here.close(trace, root, output="done")
    here.exit()
    ship(run, once=True)
    reader = of_run(run)
    try:
        (row,) = reader.select(roots=True)
        shown = reader.load(trace.hex())
    finally:
        reader.close()
    assert (row.name, row.step, row.late_spans) == ("AgentLoopWorker._run_agent_loop", 1, 0)
    assert not any("late" in note for note in shown.notes)
