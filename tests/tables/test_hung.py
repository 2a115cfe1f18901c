"""A trajectory that hangs while the run goes on: found, with the call that it is in."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from autotrace.cli.ls import warnings
from autotrace.run.shipper_process import ShipperLock
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper
from autotrace.tables import steps as findings
from autotrace.tables.hung import _ENDED, ALONE, SECONDS, _Usual, hanging, sentences
from tests.insight.made import diagnose
from tests.ship.spools import PROMPT, Process, attributes, new_run, trajectory
from tests.waiting import until


@pytest.mark.parametrize(
    ("living", "ended", "seconds", "hangs"),
    [
        (True, 3, 10_000, True),
        (False, 3, 10_000, False),
        (True, 3, ALONE + 1, True),
        (True, 3, ALONE - 1, False),  # too few have ended to know what is usual
        (True, 6, SECONDS + 1, True),
        (True, 6, SECONDS - 1, False),
    ],
)
def test_what_hangs_is_named_with_the_call_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, living: bool, ended: int, seconds: float, hangs: bool
) -> None:
    run = new_run(tmp_path, main_pid=os.getpid() if living else 0)
    process = Process(run)
    for rollout in range(ended):
        trajectory(process, rollout=rollout, reward=float(rollout % 2))
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(rollout=ended))
    llm = process.open(trace, "llm", root, PROMPT)
    process.close(trace, llm, [7, 8])
    process.open(trace, "tool", root)
    now = process.wall + process.at + int(seconds * 1e9)
    with ShipperLock(run):
        shipper = Shipper(run)
        lines = run / "trajectories.jsonl"
        until(lambda: shipper.step() and lines.exists() and len(lines.open().readlines()) >= ended)
        shipper.write("running" if living else "done")
        with contextlib.closing(of_run(run)) as reader:
            found = {finding.code: finding for finding in diagnose(findings.steps(reader, now_ns=now))}
            advice = sentences(hanging(reader, now))
            with monkeypatch.context() as patched:
                patched.setattr(time, "time_ns", lambda: now)
                listed = [text.plain for text in warnings(reader)]
        shipper.close()
    process.die()
    assert ("AT-HUNG" in found) is bool(advice) is hangs and listed == [f"! {sentence}" for sentence in advice]
    if hangs:
        (place,) = found["AT-HUNG"].places
        assert (place.trace_id, place.turn) == (trace.hex(), 1)
        assert place.note == f"in ToolAgentLoop._call_tool for {seconds:,.0f} s"
        assert advice == [
            f"1 trajectory hangs: {trace.hex()[:12]} {place.note} (autotrace diagnose --code AT-HUNG lists them)"
        ]


def test_calls_that_take_long_hang_later(tmp_path: Path) -> None:
    process = Process(new_run(tmp_path, main_pid=os.getpid()))
    for rollout in range(6):
        trajectory(process, rollout=rollout)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(rollout=6))
    process.open(trace, "reward", root)
    with contextlib.closing(of_run(process.run)) as reader:
        usual = _Usual(reader.select(columns=_ENDED))
        usual._seconds["reward"] = [30.0] * 99 + [500.0]
        (open_,) = [span for span in reader.load(trace.hex()).spans if span.role == "reward"]
        assert usual.limit(open_) == 300.0
        usual._seconds.pop("reward")
        assert usual.limit(open_) == SECONDS, "no reward has ended: it is compared with trajectories"
    process.die()
