"""One more process delivers while a backend falls behind and a core is idle, without anybody's asking."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotrace.run.status import Status
from autotrace.ship import pace
from autotrace.ship.delivery import couriers, crew
from autotrace.ship.delivery.crew import CALM, LOOK_EVERY, Scaling
from autotrace.ship.delivery.workers import WorkerProcess
from autotrace.ship.shipper import Shipper
from autotrace.sinks.jsonl.sink import JsonlSink
from autotrace.trajectory.model import Trajectory
from tests.ship.delivery.test_workers import delivered, fill
from tests.ship.spools import new_run
from tests.waiting import DEADLINE


class Machine:
    """Its clock, and what its cores did."""

    now = 100.0
    idle = 0.0

    def passes(self, seconds: float, idle_cores: float) -> None:
        self.now += seconds
        self.idle += seconds * idle_cores


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(crew.time, "monotonic", lambda: machine.now)
    monkeypatch.setattr(crew, "_idle_seconds", lambda: machine.idle)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return machine


def status(pending: int, behind: str = "") -> Status:
    return cast(Status, SimpleNamespace(pending=pending, backends={"jsonl": SimpleNamespace(behind=behind)}))


def test_one_more_while_there_is_a_backlog_and_an_idle_core(machine: Machine) -> None:
    decide = Scaling()
    assert decide.wanted(status(100)) == 1
    machine.passes(LOOK_EVERY, idle_cores=1.5)
    assert decide.wanted(status(100)) == 1, "a backlog that is worked off needs nobody"
    machine.passes(LOOK_EVERY, idle_cores=0.5)
    assert decide.wanted(status(100, "jsonl does not keep up")) == 1, "the cores are the program's"
    machine.passes(LOOK_EVERY, idle_cores=1.5)
    assert decide.wanted(status(100, "jsonl does not keep up")) == 2
    machine.passes(CALM - 1, idle_cores=0)
    assert decide.wanted(status(1)) == 2
    machine.passes(CALM + 1, idle_cores=0)
    assert decide.wanted(status(0)) == 1


def test_a_single_core_stays_with_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    decide = Scaling()
    machine.passes(LOOK_EVERY, idle_cores=1.5)
    assert decide.wanted(status(100, "jsonl does not keep up")) == 1


def test_the_shipper_starts_processes_by_itself_and_delivers_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)
    made = fill(run)
    monkeypatch.setattr(couriers, "FIRST_BATCH", 1)
    monkeypatch.setattr(couriers, "MAX_BATCH", 1)
    monkeypatch.setattr(crew, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(crew, "IDLE_CORES", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def behind(self: pace.Pace, status: Status, now: float | None = None) -> None:
        for backend in status.backends.values():
            backend.behind = "it does not keep up" if status.pending else ""

    monkeypatch.setattr(pace.Pace, "look", behind)
    started: list[int] = []
    decided = threading.Event()
    start, wanted, deliver = WorkerProcess._start, Scaling.wanted, JsonlSink.deliver

    def counting(self: WorkerProcess) -> Any:
        started.append(self.number)
        return start(self)

    def deciding(self: Scaling, status: Status) -> int:
        count = wanted(self, status)
        if count > 1:
            decided.set()
        return count

    def late(self: JsonlSink, trajectories: Sequence[Trajectory]) -> None:
        assert decided.wait(DEADLINE)  # alone, the shipper might be done before it writes what is pending
        deliver(self, trajectories)

    monkeypatch.setattr(WorkerProcess, "_start", counting)
    monkeypatch.setattr(Scaling, "wanted", deciding)
    monkeypatch.setattr(JsonlSink, "deliver", late)
    shipper = Shipper(run, once=True)
    try:
        assert shipper.deliver_all().state == "done"
    finally:
        shipper.close()
    assert started and set(started) <= {0, 1}  # the quicker one may have delivered all before the other is needed
    assert sorted(delivered(run)) == sorted(made)
