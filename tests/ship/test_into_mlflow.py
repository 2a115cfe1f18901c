"""The whole way from segments into the real MLflow, with everything on the way dying once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Trace

from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks.mlflow.uri import initialise
from tests.mlflow_server import MlflowServer
from tests.ship.spools import Process, attributes, new_run, trajectory
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.row("server faults")


def traces(query: str | None = None, run_id: str | None = None) -> dict[str, Trace]:
    experiment = mlflow.get_experiment_by_name("proj")
    if experiment is None:
        return {}
    found = mlflow.search_traces(
        locations=[experiment.experiment_id], filter_string=query, run_id=run_id, return_type="list", max_results=1000
    )
    assert len({trace.info.trace_id for trace in found}) == len(found)
    return {trace.info.trace_id.removeprefix("tr-"): trace for trace in found}


def rewards(found: dict[str, Trace]) -> dict[str, list[object]]:
    return {
        id: [one.feedback.value for one in trace.info.assessments if one.name == "reward"]
        for id, trace in found.items()
    }


def test_a_run_that_logs_to_mlflow_itself_gets_its_trajectories_linked(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/verl.db"
    initialise(uri)
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.set_experiment("proj")
    with mlflow.start_run(run_name="exp") as verl_run:
        pass
    run = new_run(tmp_path, backends=["mlflow"], tracking_uri=uri)
    process = Process(run)
    process.bind("config", project_name="proj", experiment_name="exp", logger=["console"])
    early = trajectory(process, rollout=0, step=1)
    killed = os.urandom(16)
    root = process.open(killed, "trajectory", attributes=attributes(rollout=1))
    process.open(killed, "tool", root)
    step = os.urandom(16)
    process.close(step, process.open(step, "trainer", attributes={"step": 1}))
    process.die()
    assert ship(run, once=True).state == "done"
    assert set(traces("tags.step = '1'")) == {early.hex(), killed.hex()}
    assert traces(run_id=verl_run.info.run_id) == {}

    late = Process(run, "node-8-bb")
    late.bind("mlflow", run_id=verl_run.info.run_id, experiment_id=experiment.experiment_id, tracking_uri=uri)
    late.fact("reward", 0.5, key={"uid": "u0", "session_id": 1})
    late.exit()
    assert ship(run, once=True).state == "done"
    linked = traces(run_id=verl_run.info.run_id)
    assert rewards(linked) == {early.hex(): [1.0], killed.hex(): [0.5]}
    interrupted = linked[killed.hex()]
    assert interrupted.info.state.value == "ERROR" and interrupted.info.tags["status"] == "INTERRUPTED"
    assert [span.status.status_code.value for span in interrupted.data.spans] == ["ERROR", "ERROR"]
    assert step.hex() in traces("tags.trainer_step = '1'")
    status = ship(run, once=True)
    assert status.backends["mlflow"].open_with == f"mlflow server --backend-store-uri {uri}"


def test_a_shipper_killed_while_it_delivers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["mlflow"])
    process = Process(run)
    expected = {}
    for number in range(150):
        expected[trajectory(process, uid=f"u{number}", reward=number / 7).hex()] = [number / 7]
    process.exit()
    for least in (1, 60):
        shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)])
        until(lambda least=least: Status.read(run).backends["mlflow"].delivered >= least, (OSError, KeyError))  # type: ignore[misc]
        shipper.send_signal(signal.SIGKILL)
        shipper.wait()
    assert ship(run, once=True).state == "done"
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/{layout.DEFAULT_MLFLOW_DB}")
    assert rewards(traces()) == expected


@pytest.fixture
def server(tmp_path: Path) -> MlflowServer:
    return MlflowServer(tmp_path)


@pytest.mark.long
def test_a_server_that_is_down_for_the_whole_run_gets_everything_afterwards(
    tmp_path: Path, server: MlflowServer
) -> None:
    run = new_run(tmp_path, backends=["mlflow"], tracking_uri=server.url)
    process = Process(run)
    expected = {trajectory(process, uid=f"u{number}").hex(): [1.0] for number in range(30)}
    process.exit()
    down = ship(run, once=True)
    assert (down.state, down.pending) == ("blocked", 30) and "cannot be reached" in str(down.error)
    shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)])  # main is gone: it tries on
    server.start()
    try:
        assert shipper.wait(DEADLINE) == 0
        assert Status.read(run).state == "done"
        mlflow.set_tracking_uri(server.url)
        assert rewards(traces()) == expected
        for _ in range(2):
            assert ship(run, once=True).state == "done"
        assert rewards(traces()) == expected
        page = of_run(run).run.pages()[next(iter(expected))]
        assert page.startswith(f"{server.url}/#/experiments/")
    finally:
        shipper.kill()
        shipper.wait()
        server.stop()
