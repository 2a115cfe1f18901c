"""What is found while a run goes on: when it is looked at, and where it goes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.insight import profile
from autotrace.run.info import RunInfo
from autotrace.ship import live_findings
from autotrace.ship.delivery.reporting import Reporting, StepReport
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import Shipper, ship
from autotrace.ship.store.state import State
from autotrace.sinks.jsonl.sink import JsonlSink
from autotrace.sinks.mlflow.uri import initialise
from autotrace.sinks.protocol import Refused
from autotrace.tables.conditions import condition
from tests.ship.spools import FINAL, PROMPT, Process, attributes, new_run, trajectory
from tests.tables.reading import rows
from tests.waiting import until

CONFIG = {"rollout_n": 4, "adv_estimator": "grpo", "trainer_mode": "sync", "response_length": 512}


def group(process: Process, step: int, uid: str, failing: int = 0) -> list[bytes]:
    """Four rollouts of a prompt, of which some fail."""
    made = []
    for rollout in range(4):
        if rollout >= failing:
            made.append(trajectory(process, step=step, rollout=rollout, uid=uid, reward=float(rollout % 2)))
            continue
        trace = os.urandom(16)
        root = process.open(trace, "trajectory", attributes=attributes(step, rollout, uid))
        llm = process.open(trace, "llm", root, PROMPT)
        process.close(trace, llm, FINAL)
        process.close(trace, root, status="ERROR", error=("ValueError", "the agent's own", ""))
        made.append(trace)
    return made


def found(run: Path) -> dict[str, list[str]]:
    """Trace id -> codes of the line about it."""
    reader = of_run(run)
    return {row.trace_id: row.findings or [] for row in reader.select()}


def step_until(shipper: Shipper, what: Callable[[], Any]) -> None:
    until(lambda: what() or not shipper.step())


def test_what_a_group_shows_comes_to_its_trajectories_and_to_the_backend(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    process.bind("config", **CONFIG)
    (failed, *others) = group(process, 1, "u0", failing=1)
    whole = [trace for uid in ("u1", "u2") for trace in group(process, 1, uid)]
    process.exit()
    status = ship(run, once=True)
    assert status.state == "done" and status.found.findings == 2
    assert status.found.worst.startswith("AT-GROUP-INCOMPLETE (") and len(status.found.trace_id) == 32
    assert found(run)[failed.hex()] == ["AT-ROLLOUT-FAILED"]
    assert {tuple(found(run)[trace.hex()]) for trace in others} == {("AT-GROUP-INCOMPLETE",)}
    assert {tuple(found(run)[trace.hex()]) for trace in whole} == {()}
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    latest = {line["trace_id"]: line.get("findings") for line in lines}
    assert {tuple(latest[trace.hex()]) for trace in others} == {("AT-GROUP-INCOMPLETE",)}
    listed = of_run(run).select(condition("finding = 'AT-GROUP-INCOMPLETE'"))
    assert {row.trace_id for row in listed} == {trace.hex() for trace in others}
    before = (run / "trajectories.jsonl").read_bytes()
    state = State.of_run(run)
    with state:
        state.db.execute("UPDATE meta SET value = '{}' WHERE key = 'found:1'")  # as if another release had written it
    state.close()
    assert ship(run, once=True).found == status.found, "remembered"
    assert (run / "trajectories.jsonl").read_bytes() == before


def test_what_is_known_later_brings_the_findings_of_the_group_along(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    process.bind("config", **CONFIG)
    (_, *others) = [trace for uid in ("u0", "u1", "u2", "u3", "u4") for trace in group(process, 1, uid, failing=1)]
    process.exit()
    assert ship(run, once=True).state == "done"

    def versions() -> dict[str, int]:
        state = State.read_only(run)
        made = {row.trace_id: row.version for row in state.rows()}
        state.db.close()
        return {id: made[id] for id, codes in found(run).items() if codes == ["AT-GROUP-INCOMPLETE"]}

    before = versions()
    assert sorted(before.values()) == [2] * 15
    state = State.read_only(run)
    again = state.count("SELECT count(*) FROM deliveries WHERE backend = 'jsonl' AND version = 2")
    state.db.close()
    assert again == 4, "four are delivered once more; the tables have it of all"
    assert [row["name"] for row in rows(run, "facts")].count("group_findings") == 15
    assert CliRunner().invoke(main, ["ls", str(run)]).output.count("AT-GROUP-INCOMPLETE") == 15
    later = Process(run, "node-1-bb")
    for trace in others:
        later.fact("trained_in_step", 1, trace)
    later.exit()
    assert ship(run, once=True).state == "done"
    assert versions() == {id: version + 1 for id, version in before.items()}, "each is delivered once, with both"
    delivered = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert sum(line["facts"].get("trained_in_step") == 1 for line in delivered) == len(others)
    assert sum("AT-GROUP-INCOMPLETE" in line.get("findings", []) for line in delivered) == 15


def test_a_step_is_looked_at_while_the_run_goes_on_and_again_when_late_facts_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_findings, "QUIET", 0.1)
    run = new_run(tmp_path, main_pid=os.getpid())
    process = Process(run)
    process.bind("config", **CONFIG)
    traces = group(process, 1, "u0")
    process.open(os.urandom(16), "trajectory", attributes=attributes(1, 0, "u9"))
    shipper = Shipper(run)
    state = State.of_run(run)  # it holds no lock here: who only reads takes the state for one that was left behind

    def codes_of(trace: bytes) -> list[str]:
        row = state.row(trace.hex())
        assert row is not None
        return profile.codes(profile.decode(row.profile)) or []

    try:
        step_until(shipper, lambda: state.count("SELECT sum(complete) FROM traces") == 4)
        assert not state.metas("found:"), "of the step something is still open"
        group(process, 2, "u1")
        step_until(shipper, lambda: "1" in state.metas("found:"))  # what hangs is not waited for
        assert codes_of(traces[0]) == []
        for trace, advantage in zip(traces, (1.0, -1.0, 1.0, -1.0), strict=True):
            process.fact("advantage", advantage, trace)  # of the wrong sign, each
        step_until(shipper, lambda: "AT-ADVANTAGE-WRONG" in codes_of(traces[0]))
    finally:
        process.die()
        state.close()
        shipper.close()


def test_the_trainers_mlflow_run_has_numbers_and_a_page_of_each_step(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    initialise(uri)
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("exp", artifact_location=str(tmp_path / "artifacts"))
    with mlflow.start_run(experiment_id=experiment) as started:
        pass
    run = new_run(tmp_path, backends=["mlflow"], tracking_uri=uri)
    process = Process(run)
    process.bind("config", logger=["mlflow"], **CONFIG)
    process.bind("mlflow", run_id=started.info.run_id, experiment_id=experiment, tracking_uri=uri)
    for step in (1, 2):
        group(process, step, "u0", failing=step - 1)
        group(process, step, "u1")
        group(process, step, "u2")
    process.exit()
    assert ship(run, once=True).state == "done"
    client = mlflow.MlflowClient()
    history = client.get_metric_history(started.info.run_id, "autotrace/failed")
    assert {(metric.step, round(metric.value, 4)) for metric in history} == {(1, 0.0), (2, round(1 / 12, 4))}
    shares = client.get_metric_history(started.info.run_id, "autotrace/finding/AT-GROUP-INCOMPLETE")
    assert [(metric.step, metric.value) for metric in shares] == [(2, 0.25)]
    clean, bad = ((tmp_path / "artifacts").glob(f"**/autotrace/findings-step-00000{step}.txt") for step in (1, 2))
    assert "0 kinds of findings" in next(clean).read_text()
    assert "1. AT-GROUP-INCOMPLETE" in next(bad).read_text()
    query = "feedback.finding = 'AT-GROUP-INCOMPLETE'"
    traces = mlflow.search_traces(locations=[experiment], filter_string=query, return_type="list")
    assert len(traces) == 3
    assert all(trace.info.tags["findings"] == "AT-GROUP-INCOMPLETE" for trace in traces)


class Refusing:
    """Takes nothing while ``refuses``."""

    def __init__(self) -> None:
        self.refuses = True
        self.taken: list[int] = []
        self.threads: set[str] = set()

    def report(self, _: object, step: int, metrics: Mapping[str, float], page: str) -> None:
        self.threads.add(threading.current_thread().name)
        if self.refuses:
            raise Refused("not now")
        self.taken.append(step)


def test_a_report_that_was_refused_is_told_by_the_next_shipper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Refusing()
    monkeypatch.setattr(JsonlSink, "report", lambda *told: reporter.report(*told), raising=False)
    run = new_run(tmp_path)
    process = Process(run)
    group(process, 1, "u0")
    process.exit()
    assert ship(run, once=True).state == "done", "nothing waits for a report"
    reporter.refuses = False
    assert ship(run, once=True).state == "done"
    assert ship(run, once=True).state == "done"
    assert reporter.taken == [1] and reporter.threads == {"deliver-jsonl_0"}, "as the trajectories"


def test_a_backend_that_a_run_no_longer_has_keeps_the_run_from_no_end(tmp_path: Path) -> None:
    info = RunInfo.read(new_run(tmp_path))
    with closing(State(":memory:")) as state:
        reporting = Reporting(state, info)
        reporting.add(StepReport(1, {}, "page"))
        assert reporting.busy
        info.backends = ["parquet"]
        assert not reporting.busy
