"""Delivery processes deliver what one shipper would, decide nothing, and may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.delivery import deliverers as deliverers_module
from autotrace.ship.delivery.deliverers import Deliverer, said
from autotrace.ship.shipper import Shipper, ship
from autotrace.ship.store.delivery_queue import Share
from autotrace.sinks import registry
from autotrace.sinks.jsonl.sink import SMALL, JsonlSink
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE, until


def fill(run: Path, count: int = 60, **more: Any) -> list[str]:
    """Trajectories in groups of four, whose rewards come by uid, after them."""
    process = Process(run)
    made = []
    for number in range(count):
        made.append(trajectory(process, uid=f"u{number // 4}", rollout=number % 4, reward=None, **more).hex())
    for number in range(count):
        process.fact("reward", float(number), key={"uid": f"u{number // 4}", "session_id": number % 4})
    process.exit()
    return made


def delivered(run: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    by_id = {line["trace_id"]: line for line in lines}
    assert len(by_id) == len(lines)
    return by_id


def copy(run: Path, name: str) -> Path:
    """The same run, not shipped yet."""
    other = run.parent / name
    subprocess.run(["cp", "-r", run, other], check=True)
    return other


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


@pytest.fixture
def follow() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(run: Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def some_children(pid: int) -> list[int]:
    return list(until(lambda: children(pid)))


def kill_one(pid: int, which: int) -> None:
    """Kills a child of ``pid``: another one, if that has died between two looks."""

    def killed() -> bool:
        try:
            os.kill(children(pid)[which], signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return False
        return True

    until(killed)


def gone(pids: list[int]) -> None:
    """Waits until these have ended."""
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_several_deliver_what_one_would(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    made = fill(run)
    alone = copy(run, "alone")
    status = ship(run, once=True, shippers=3)
    assert (status.state, status.shippers, status.trajectories) == ("done", 3, 60)
    assert status.backends["jsonl"].delivered == 60
    assert status.backends["jsonl"].sent_bytes == ship(alone, once=True).backends["jsonl"].sent_bytes > 0
    assert delivered(run) == delivered(alone) and set(made) == set(delivered(run))
    assert [line["facts"]["reward"] for line in map(delivered(run).get, made)] == [float(n) for n in range(60)]


def test_the_number_of_processes_is_part_of_the_run(tmp_path: Path) -> None:
    run = new_run(tmp_path, shippers=2)
    fill(run, 8)
    assert ship(run, once=True).shippers == 2
    assert len(delivered(run)) == 8


def test_a_late_fact_replaces_what_another_process_delivered(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    made = fill(run, 12)
    ship(run, once=True, shippers=2)
    late = Process(run, "node-9-dd")
    for number in range(12):
        late.fact("trained_in_step", 7, key={"uid": f"u{number // 4}", "session_id": number % 4})
    late.exit()
    assert ship(run, once=True, shippers=3).state == "done"
    assert {line["facts"]["trained_in_step"] for line in delivered(run).values()} == {7} and len(made) == 12


def test_the_lines_that_late_facts_replaced_are_gone_when_it_is_done(
    tmp_path: Path, follow: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    """The processes close their sinks: a large file is rewritten then. The first process reads it at that time."""
    main = subprocess.Popen(["sleep", "600"])
    run = new_run(tmp_path, main_pid=main.pid, shippers=2)
    try:
        fill(run, 40, text="x" * (SMALL // 30))
        shipper = follow(run)
        until(lambda: Status.read(run).backends["jsonl"].delivered == 40, (OSError,))
        for step in range(2):
            late = Process(run, f"node-9-d{step}")
            for number in range(6):
                late.fact("trained_in_step", step, key={"uid": f"u{number // 4}", "session_id": number % 4})
            late.exit()
            (run / layout.DRAIN).touch()
            until(lambda step=step: Status.read(run).state == "done" and trained_in(run, step) == 6)
            assert len(delivered(run)) == 40
    finally:
        main.kill()
        main.wait()
    assert shipper.wait(DEADLINE) == 0


def trained_in(run: Path, step: int) -> int:
    """How many of the run's lines say so."""
    return (run / "trajectories.jsonl").read_text().count(f'"trained_in_step":{step}')


def test_groups_are_decided_once_for_all_processes(tmp_path: Path) -> None:
    run = new_run(tmp_path, keep=["errors", "random=0.4"])
    fill(run, 80)
    alone = copy(run, "alone")
    ship(run, once=True, shippers=3)
    ship(alone, once=True)
    groups = [line["attributes"]["uid"] for line in delivered(run).values()]
    assert 0 < len(groups) < 80
    assert all(groups.count(uid) == 4 for uid in groups)  # never half a group
    assert set(delivered(run)) == set(delivered(alone))


def test_one_process_counts_a_budget(tmp_path: Path) -> None:
    run = new_run(tmp_path, step_budget=60_000)
    fill(run, 80)
    status = ship(run, once=True, shippers=3)
    assert status.shippers == 1 and "one process counts what --step-budget allows" in " ".join(status.notes)
    groups = [line["attributes"]["uid"] for line in delivered(run).values()]
    assert 0 < len(groups) < 80 and all(groups.count(uid) == 4 for uid in groups)
    assert (run / "trajectories.jsonl").stat().st_size <= 60_000
    assert ship(run, once=True, everything=True, shippers=3).shippers == 3 and len(delivered(run)) == 80


def test_killed_processes_lose_and_double_nothing(
    tmp_path: Path, follow: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    """Delivery processes while they deliver, then the shipper above them, whose processes end with it."""
    main = subprocess.Popen(["sleep", "600"])
    run = new_run(tmp_path, main_pid=main.pid, shippers=2)
    process = Process(run)
    expected: dict[str, float] = {}
    try:
        shipper = follow(run)
        for round in range(6):
            for number in range(20):
                uid = f"{round}.{number}"
                expected[trajectory(process, uid=uid, reward=None).hex()] = float(number)
                process.fact("reward", float(number), key={"uid": uid, "session_id": 0})
            if round == 3:
                workers = some_children(shipper.pid)
                shipper.kill()
                shipper.wait()
                gone(workers)
                shipper = follow(run)
            else:
                kill_one(shipper.pid, round % 2 - 1)
        process.exit()
    finally:
        main.kill()
        main.wait()
    assert shipper.wait(DEADLINE) == 0
    assert {trace: line["facts"].get("reward") for trace, line in delivered(run).items()} == expected
    assert Status.read(run).state == "done" and Status.read(run).pending == 0
    assert "was killed by signal 9; it is started again" in (run / "shipper.log").read_text()


def test_processes_that_die_again_and_again_leave_it_to_the_shipper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverers_module, "FIRST_DELAY", 0.001)
    start = Deliverer.__init__

    def broken(self: Deliverer, *given: Any) -> None:
        start(self, *given)
        self._words = [sys.executable, "-c", "raise SystemExit(3)"]

    monkeypatch.setattr(Deliverer, "__init__", broken)
    run = new_run(tmp_path)
    fill(run, 8)
    status = ship(run, once=True, shippers=2)
    assert status.state == "done" and len(delivered(run)) == 8 and status.shippers == 1
    assert any("died again and again" in note for note in status.notes)


def test_a_process_that_cannot_be_started_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverers_module, "FIRST_DELAY", 0.001)
    run = new_run(tmp_path)
    fill(run, 8)

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(deliverers_module.subprocess, "Popen", refused)
    assert ship(run, once=True, shippers=2).state == "done" and len(delivered(run)) == 8


def test_a_backend_that_takes_one_caller_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path, backends=["jsonl", "otlp"])
    made: list[list[tuple[str, Share]]] = []

    def made_by(one: Deliverer) -> None:
        made.append([(remote.name, remote.share) for remote in said(one._state, one.key)])

    monkeypatch.setattr(Deliverer, "keep", made_by)
    monkeypatch.setattr(registry.get("otlp"), "parallel", False)
    shipper = Shipper(run, shippers=3)
    shipper.step()
    shipper.close()
    first, *others = ([("jsonl", Share(number, 3))] for number in range(3))
    assert made == [[*first, ("otlp", Share(0, 1))], *others]


def test_nothing_is_started_before_there_is_something_to_do(tmp_path: Path) -> None:
    run = new_run(tmp_path, main_pid=os.getpid(), shippers=2)
    process, others = Process(run), children(os.getpid())
    shipper = Shipper(run)
    shipper.step()
    assert children(os.getpid()) == others
    trajectory(process)
    process.exit()
    until(lambda: shipper.step() and children(os.getpid()) != others)
    shipper.close()
    assert children(os.getpid()) == others


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


@pytest.mark.usefixtures("unreachable")
def test_the_status_says_what_keeps_a_process_from_delivering(tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["jsonl", "otlp"])
    fill(run, 8)
    status = ship(run, once=True, shippers=2)
    otlp = status.backends["otlp"]
    assert (status.state, otlp.state, otlp.pending) == ("blocked", "waiting", 8)
    assert otlp.error is not None and "127.0.0.1:9" in otlp.error and status.error == otlp.error
    assert len(delivered(run)) == 8


@pytest.mark.usefixtures("unreachable")
def test_the_backend_of_verls_configuration_is_dealt_out_instead(tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["otlp"], origins={"backends": "default"}, shippers=2)
    fill(run, 8)
    late = Process(run, "node-9-dd")
    late.bind("verl_trace", backend="jsonl")
    late.exit()
    status = ship(run, once=True)
    assert (status.state, list(status.backends), len(delivered(run))) == ("done", ["jsonl"], 8)


def test_each_trace_is_of_one_share() -> None:
    shares = [Share(number, 5) for number in range(5)]

    ids = [os.urandom(16).hex() for _ in range(5_000)]
    counts = [sum(trace in share for trace in ids) for share in shares]
    assert sum(counts) == len(ids) and min(counts) > 800


def test_two_writers_of_one_file_of_lines(tmp_path: Path) -> None:
    """Each replaces lines of its own while the other appends."""
    run = new_run(tmp_path)
    fill(run, 24)
    ship(run, once=True)
    whole = delivered(run)
    (run / "trajectories.jsonl").unlink()
    from autotrace.ship.readers import of_run

    reader = of_run(run)
    trajectories = [reader.load(trace) for trace in whole]
    reader.close()
    halves = (trajectories[::2], trajectories[1::2])

    def write(half: int) -> None:
        sink = JsonlSink(run, {})
        for _ in range(10):
            for one in halves[half]:
                sink.deliver([one])

    threads = [threading.Thread(target=write, args=(half,)) for half in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert delivered(run) == whole
