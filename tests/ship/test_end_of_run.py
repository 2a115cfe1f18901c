"""The first process waits for delivery: nothing but delivery keeps it waiting once all processes have ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from autotrace.run import layout
from autotrace.ship.shipper import Shipper
from autotrace.sinks.mlflow.uri import initialise
from autotrace.spool.records import Seal
from tests.ship.spools import Process, new_run, trajectory
from tests.ship.test_live_findings import CONFIG, found, group

PATIENCE = 50
"""Rounds in which nothing happens and nothing is on its way: a fixed wait, of however short a time, has more."""


def rounds_without_need(shipper: Shipper) -> int:
    """Until everything is delivered, those of the shipper's rounds in which it waited and not for its backend."""
    idle = 0
    while idle < PATIENCE:
        state, moved = shipper.step()
        if state == "done":
            break
        if shipper._delivery.busy:
            time.sleep(0.01)
        elif not moved:
            idle += 1
    return idle


@pytest.mark.parametrize("backends", [["jsonl"], ["jsonl", "mlflow"]], ids="+".join)
@pytest.mark.parametrize("how", ["exit", "die"])
@pytest.mark.parametrize("keep", [None, pytest.param(["errors"], marks=pytest.mark.long)], ids=["all", "keep-rules"])
def test_what_all_processes_have_written_is_delivered_without_a_wait(
    tmp_path: Path, how: str, keep: list[str] | None, backends: list[str]
) -> None:
    settings: dict[str, Any] = {"backends": backends}
    if "mlflow" in backends:  # a database that exists: making one takes seconds
        settings["tracking_uri"] = f"sqlite:///{tmp_path}/store.db"
        initialise(settings["tracking_uri"])
    if keep is not None:
        settings["keep"] = keep
    run = new_run(tmp_path, main_pid=os.getpid(), **settings)
    process = Process(run)
    process.bind("config", **CONFIG)
    (failed, *others) = group(process, 1, "u0", failing=1)
    for uid in ("u1", "u2"):
        group(process, 1, uid)
    getattr(process, how)()
    (run / layout.DRAIN).touch()
    shipper = Shipper(run)
    try:
        assert rounds_without_need(shipper) < PATIENCE / 5
    finally:
        shipper.close()
    assert found(run)[failed.hex()] == ["AT-ROLLOUT-FAILED"]
    assert {tuple(found(run)[trace.hex()]) for trace in others} == {("AT-GROUP-INCOMPLETE",)}
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    latest = {line["trace_id"]: line.get("findings") for line in lines}
    assert len(latest) == (12 if keep is None else 4)
    assert {tuple(latest[trace.hex()]) for trace in others} == {("AT-GROUP-INCOMPLETE",)}


def test_a_process_that_still_lives_is_waited_for(tmp_path: Path) -> None:
    run = new_run(tmp_path, main_pid=os.getpid())
    process, child = Process(run), Process(run, "node-7-ff")
    trajectory(process)
    process.exit()
    (run / layout.DRAIN).touch()
    shipper = Shipper(run)
    try:
        assert rounds_without_need(shipper) == PATIENCE
        late = trajectory(child)
        child.die()
        assert rounds_without_need(shipper) < PATIENCE / 5
    finally:
        shipper.close()
    assert late.hex() in (run / "trajectories.jsonl").read_text()


def test_a_segment_without_a_header_is_left_to_its_writer(tmp_path: Path) -> None:
    """Its writer is about to take the lock, and could not while we hold it."""
    run = new_run(tmp_path, main_pid=os.getpid())
    process = Process(run)
    trajectory(process)
    process.write(Seal("rotate", process.tick()))
    following = run / layout.SPOOL / f"{process.name}-1{layout.SEGMENT_SUFFIX}"
    following.touch()
    os.utime(following, (time.time() + 60, time.time() + 60))  # it stays young, however slow this machine is
    (run / layout.DRAIN).touch()
    shipper = Shipper(run)
    try:
        assert rounds_without_need(shipper) == PATIENCE, "it counts as living"
    finally:
        shipper.close()
