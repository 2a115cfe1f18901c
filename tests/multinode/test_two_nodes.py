"""A run on two nodes that share no folder and not even a clock: the trajectories are as on one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotrace.run import layout
from tests.folders import modes
from tests.multinode.cluster import PROGRAM, Cluster, until
from tests.multinode.runs import Run, Trajectory, killed, whole

SLACK = 0.02
"""Seconds by which clocks of two nodes may differ afterwards."""


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> tuple[Run, float, float]:
    """A run; the other node's clock is an hour ahead, its uptime six days."""
    began = time.time()
    ahead = json.dumps({"env_vars": {"CLOCK_AHEAD": "3600"}})
    run = Run(cluster, "plain", str(cluster.runs), ahead)
    run.end()
    return run, began, time.time()


def test_every_trajectory_is_delivered_once_with_the_calls_of_the_other_node(plain: tuple[Run, float, float]) -> None:
    run, _, _ = plain
    whole(run, range(1, 3))
    for each in run.trajectories():
        engines = {span["output"]["where"] for span in each.named("Engine.generate")}
        tools = {span["output"].rpartition(" ")[2] for span in each.named("Search.look_up")}
        assert (engines, tools) == (({"node2"}, {"node2"}) if each.name[0] == 1 else ({"node1"}, {"node2"}))
    assert run.status()["state"] == "done" and not run.status()["died"], run.status()
    assert not list(run.folder_on(run.cluster.node2).glob(layout.RUN_JSON)), "node 2 has a folder of its own"


def test_clocks_are_made_one(plain: tuple[Run, float, float]) -> None:
    run, began, ended = plain
    for each in run.trajectories():
        for span in each.spans:
            start, end = span["start_ns"] / 1e9, span["end_ns"] / 1e9
            assert began - SLACK <= start <= end <= ended + SLACK
        for span in each.spans[1:]:
            above = each.above(span)
            assert above["start_ns"] / 1e9 - SLACK <= span["start_ns"] / 1e9
            assert span["end_ns"] / 1e9 <= above["end_ns"] / 1e9 + SLACK


def test_targets_are_reported_by_both_nodes(plain: tuple[Run, float, float]) -> None:
    run, _, _ = plain
    targets = {target["key"]: target for target in run.status()["targets"]}
    assert targets["agents.Engine.generate"]["calls"] == 16
    assert targets["agents.Agent.think"]["calls"] == 16
    writers = {path.name.split("-")[0] for path in (run.folder / layout.SPOOL).iterdir()}
    assert writers == {"node1", "node2"}
    assert targets["agents.Engine.generate"]["processes"] >= 5, "driver, two workers, two engines at least"


def test_what_a_session_asks_the_gateway_of_either_node_are_its_turns(cluster: Cluster) -> None:
    run = Run(cluster, "gateways")
    run.end()
    sessions = run.trajectories()
    assert sorted(each.name for each in sessions) == [(sample, number) for sample in (1, 2) for number in range(4)]
    for each in sessions:
        asked = each.named("Gateway.complete")
        assert [each.above(span)["name"] for span in asked] == ["Agent.session"] * 2
        assert {span["host"] for span in asked} == {f"node{each.name[0]}"}
        assert [len(span["messages"]) for span in asked] == [2, 4]


def test_nobody_else_reads_what_is_kept_there(plain: tuple[Run, float, float]) -> None:
    run, _, _ = plain
    for node in (run.cluster.node1, run.cluster.node2):
        folder = run.folder_on(node)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {mode & 0o077 for mode in modes(folder).values()} == {0}


def test_into_mlflow(cluster: Cluster) -> None:
    run = Run(cluster, "plain", backend="mlflow")
    run.end()
    code = (
        "import sys, mlflow\n"
        "from collections import Counter\n"
        f"mlflow.set_tracking_uri('sqlite:///{cluster.node1.runs}/mlflow.db')\n"
        "client = mlflow.MlflowClient()\n"
        "traces = client.search_traces(locations=[e.experiment_id for e in client.search_experiments()])\n"
        "names = Counter((t.info.tags['sample_index'], t.info.tags['rollout_n']) for t in traces)\n"
        "assert names == {(str(s), str(n)): 1 for s in (1, 2) for n in range(4)}, names\n"
        "for trace in traces:\n"
        "    spans = {s.span_id: s for s in trace.data.spans}\n"
        "    edges = Counter((spans[s.parent_id].name, s.name) for s in spans.values() if s.parent_id)\n"
        "    assert len(spans) == 6, spans\n"
        "    assert edges['turn 1', 'Engine.generate'] == edges['turn 2', 'Engine.generate'] == 1, edges\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_collector_and_relay_killed_in_the_middle_lose_and_double_nothing(cluster: Cluster) -> None:
    run = Run(cluster, "pauses")
    run.ready()
    killed(cluster.node1, "autotrace.ship")
    run.go()
    run.ready()
    killed(cluster.node2, "autotrace.ship.cluster.relay")
    run.go()
    run.end()
    whole(run, range(1, 6))
    assert "autotrace.ship was killed by signal 9" in (run.folder / layout.SHIPPER_LOG).read_text()
    there = run.folder_on(cluster.node2)
    assert "autotrace.ship.cluster.relay was killed by signal 9" in (there / layout.SHIPPER_LOG).read_text()
    for segment in (there / layout.SPOOL).iterdir():
        assert (run.folder / layout.SPOOL / segment.name).read_bytes() == segment.read_bytes()


def test_workers_without_autotrace_work_and_the_driver_says_so_once(cluster: Cluster, tmp_path: Path) -> None:
    hidden = cluster.place / "hidden"
    (hidden / "autotrace").mkdir(parents=True)
    (hidden / "autotrace" / "__init__.py").write_text("raise ImportError('no autotrace here')\n")
    run = Run(cluster, "lacking", f"{hidden}:{PROGRAM}")
    run.end()
    said = [line for line in (run.stderr + "\n".join(run.stdout)).splitlines() if "are not traced" in line]
    assert len(said) == 1 and "workers on node2" in said[0], said
    for each in run.trajectories():
        assert each.status == "OK" and not each.named("Engine.generate") and len(each.named("Agent.think")) == 2


@contextmanager
def blocked(cluster: Cluster, port: int) -> Iterator[None]:
    """A firewall between node 2 and that port of node 1."""
    rule = ["to", cluster.node1.address, "ipproto", "tcp", "dport", str(port), "prohibit"]
    assert cluster.node2.run(["ip", "rule", "add", *rule]).returncode == 0
    try:
        yield
    finally:
        cluster.node2.run(["ip", "rule", "del", *rule])


def test_no_way_to_the_collector_is_said_at_the_start_and_copying_delivers(cluster: Cluster) -> None:
    with blocked(cluster, 47113):
        run = Run(cluster, "pauses", AUTOTRACE_LISTEN=":47113")
        run.ready()
        until(lambda: "cannot be reached from node2" in run.stderr + "".join(run.stdout), "nothing was said", 20)
        run.go()
        run.ready()
        run.go()
        run.end()
    there = run.folder_on(cluster.node2) / layout.SPOOL
    assert list(there.iterdir()) and not list((run.folder / layout.SPOOL).glob("node2-*"))
    until(lambda: not cluster.node1.processes(run.folder.name), "the shipper does not end", 60)
    for segment in there.iterdir():
        shutil.copy(segment, run.folder / layout.SPOOL)
    run.ship()
    whole(run, range(1, 6))
    assert "0 left" in run.ship()


def test_what_was_recorded_while_the_collector_was_out_of_reach_follows(cluster: Cluster) -> None:
    with blocked(cluster, 47114):
        run = Run(cluster, "pauses", AUTOTRACE_LISTEN=":47114")
        run.ready()
        run.go()
        run.ready()
    until(lambda: len(list((run.folder / layout.SPOOL).glob("node2-*"))), "the relay did not try again", 60)
    run.go()
    run.end()
    whole(run, range(1, 6))


def test_a_submitted_job_needs_one_variable(cluster: Cluster) -> None:
    before = set(cluster.node1.runs.iterdir())
    variables = {
        "AUTOTRACE": "1", "AUTOTRACE_BACKEND": "jsonl", "AUTOTRACE_RUN_DIR": str(cluster.runs),
        "AUTOTRACE_SPECS": str(PROGRAM / "agents.yaml"),
    }  # fmt: skip
    words = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "job",
        "submit",
        f"--address=http://{cluster.node1.address}:8265",
    ]
    env = ["--runtime-env-json", json.dumps({"env_vars": variables})]
    driver = [sys.executable, str(PROGRAM / "driver.py"), cluster.address, "plain"]
    done = cluster.node1.run([*words, *env, "--", *driver], cluster.environ)
    assert done.returncode == 0 and "all answers right" in done.stdout, done.stdout + done.stderr
    (folder,) = set(cluster.node1.runs.iterdir()) - before
    assert "8 trajectories to jsonl" in done.stdout, "the job's first process waits for delivery"
    lines = (folder / "trajectories.jsonl").read_text().splitlines()
    found = [Trajectory(json.loads(line)) for line in lines]
    assert len({each.name for each in found}) == len(found) == 8
    assert all(len(each.spans) == 6 for each in found)
