"""The servers fail while real veRL trains; in the end they have everything once.

One run per release stays open over all tests here: each orders a failure of both servers, lets the trainer do a step
(which must not notice), ends the failure where it does not end by itself, and looks what the servers have.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_server import Fault
from launches import PATHS, Launch, weave_variables
from proxy import Proxy
from read import ReadBack, in_mlflow, in_weave

from autotrace.ship.readers import of_run
from autotrace.sinks.mlflow.server import request
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.weave.calls import WeaveCalls, encoded
from autotrace.tables.conditions import equals
from tests.mlflow_server import MlflowServer

pytestmark = [pytest.mark.timeout(900), pytest.mark.backends, pytest.mark.row("server faults")]
FAULTS = ("down", "slow", "401", "413", "429", "500 after commit")
N = 4
WRITES = {"mlflow": ("/v1/traces", "/mlflow/traces"), "weave": ("/calls/complete", "/feedback/batch/create")}
"""What each backend is written with."""


class Live:
    """A run that goes on, and the two proxies between it and the servers."""

    def __init__(self, launch: Launch, proxies: dict[str, Proxy]) -> None:
        self.launch, self.proxies = launch, proxies
        self.step = 0

    def order(self, make: Callable[[str], list[Fault]]) -> None:
        """From now on these failures."""
        for name, proxy in self.proxies.items():
            with proxy.lock:
                proxy.faults[:] = make(name)
                proxy.hits.clear()

    def go(self) -> None:
        """Let the trainer do a step."""
        self.step += 1
        (self.launch.gate / f"go-{self.step}").touch()

    def stepped(self) -> bool:
        """The step is done."""
        assert self.launch.process.poll() is None, self.launch.log[-3000:]
        return (self.launch.gate / f"done-{self.step}").exists()

    def hit(self) -> bool:
        """Every failure that was ordered happened."""
        return all(proxy.hits for proxy in self.proxies.values())

    def states(self) -> set[str]:
        """What the shipper says of the backends: ok, waiting or blocked."""
        return {backend["state"] for backend in self.launch.status()["backends"].values()}

    def recorded(self, texts: bool = False) -> list[Any]:
        """The step's trajectories in the run folder."""
        index = of_run(self.launch.run)
        try:
            rows = [row for row in index.select(equals(step=self.step), roots=True) if row.role == "trajectory"]
            return [index.load(row.trace_id, texts=texts) for row in rows]
        finally:
            index.close()

    def delivered(self) -> bool:
        """The shipper says that nothing is left, late facts included."""
        status = self.launch.status()
        waiting = [backend["pending"] for backend in status.get("backends", {}).values()]
        if status.get("trajectories") != N * self.step or any(waiting) or status["open"]:
            return False
        return all("trained_in_step" in one.facts for one in self.recorded())


@pytest.fixture(scope="module")
def live(
    releases: None,
    mlflow_server: MlflowServer,
    weave_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Live]]:
    """A run of each release, waiting for its first step."""
    folder = tmp_path_factory.mktemp("faults")
    made = {}
    for release in PATHS:
        proxies = {"mlflow": Proxy(mlflow_server.url), "weave": Proxy(weave_url)}
        gate = folder / f"gate-{release}"
        gate.mkdir()
        launch = Launch(
            f"faults-{release}", release, folder / release, ["--backend", "mlflow,weave"],
            variables={**weave_variables(proxies["weave"].url), "MLFLOW_TRACKING_URI": proxies["mlflow"].url},
            n=N, workers=1, prompts=1, steps=len(FAULTS) + 1, gate=gate,
        )  # fmt: skip
        made[release] = Live(launch.start(), proxies)
    try:
        for one in made.values():  # a step without trouble: everything is imported then
            one.go()
        wait(made, Live.delivered, 500.0)
        yield made
    finally:
        for one in made.values():
            if one.launch.process.poll() is None:
                one.launch.process.kill()


def wait(live: dict[str, Live], condition: Callable[[Live], bool], seconds: float = 240.0) -> None:
    """Until all meet the condition."""
    end = time.monotonic() + seconds
    while not all(condition(one) for one in live.values()):
        assert time.monotonic() < end, {name: one.launch.status() for name, one in live.items()}
        time.sleep(0.2)


def lasting(fault: str) -> Callable[[str], list[Fault]] | None:
    """Failures that the test must end."""
    if fault in ("down", "413"):  # behind the second all of a step is sent together, so that it is too large
        return lambda name: [Fault("", drop=True, times=-1)]
    if fault == "401":
        return lambda name: [Fault("", 401, times=-1)]
    return None


def passing(fault: str, one: Live) -> Callable[[str], list[Fault]]:
    """Failures that end by themselves, and the limit on sizes."""
    if fault == "slow":
        return lambda name: [Fault("", times=3, delay=2.0)]
    if fault == "429":
        return lambda name: [Fault("", 429, times=2, headers={"Retry-After": "1"})]
    if fault == "500 after commit":
        return lambda name: [Fault(path, 500, after=True) for path in WRITES[name]]
    if fault == "413":
        told = one.recorded(texts=True)
        # one trajectory passes, four of them do not
        limits = {"mlflow": 1.02 * max(map(_as_otlp, told)), "weave": 3 * max(map(_call, told))}
        return lambda name: [Fault(WRITES[name][0], 413, times=-1, over_bytes=int(limits[name]))]
    return lambda name: []


def _as_otlp(trajectory: Any) -> int:
    return len(request(encode(trajectory)).SerializeToString())


def _call(trajectory: Any) -> int:
    return max(len(encoded(WeaveCalls(trajectory, "dev/some-project", None).of(span))) for span in trajectory.spans)


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_doubled(
    live: dict[str, Live], fault: str, mlflow_server: MlflowServer, record_property: Any
) -> None:
    first = lasting(fault)
    for one in live.values():
        one.order(first or passing(fault, one))
        one.go()
    wait(live, Live.stepped)  # the trainer does not wait for a server
    if first is not None:
        expected = {"blocked" if fault == "401" else "waiting"}
        wait(live, lambda one: one.states() == expected)
        for one in live.values():
            one.order(passing(fault, one))
    if fault not in ("down", "401"):
        wait(live, Live.hit)
    wait(live, Live.delivered)
    for one in live.values():
        seen = in_mlflow(mlflow_server.url, one.launch.project, query=f"tags.step = '{one.step}'")
        here = {trajectory.trace_id: trajectory for trajectory in one.recorded()}
        assert {told.trace_id: told.spans for told in seen} == {id: len(it.spans) for id, it in here.items()}
        for told in seen:
            assert told.facts["reward"] == here[told.trace_id].facts["reward"]
            assert told.facts["trained_in_step"] == one.step
        assert all(backend["rejected_count"] == 0 for backend in one.launch.status()["backends"].values())
        one.order(lambda name: [])
    record_property("note", fault)


def test_the_servers_have_everything_once(live: dict[str, Live], read_back: ReadBack, weave_url: str) -> None:
    for release, one in live.items():
        one.launch.wait()
        recorded = one.launch.recorded
        assert len(recorded) == N * (len(FAULTS) + 1)
        seen = in_weave(read_back, one.launch.project)["all"]
        assert len(seen) == len(recorded), release
        assert {told.trace_id: told.spans for told in seen} == {id: len(it.spans) for id, it in recorded.items()}
        for told in seen:
            facts = recorded[told.trace_id].facts
            assert {name: told.facts[name] for name in ("reward", "advantage")} == {
                name: facts[name] for name in ("reward", "advantage")
            }
        rows = _feedback(weave_url, f"dev/{one.launch.project}")
        assert len({row["id"] for row in rows}) == len(rows)
        assert set(Counter((row["weave_ref"], row["feedback_type"]) for row in rows).values()) == {1}


def _feedback(url: str, project: str) -> list[dict[str, Any]]:
    body = json.dumps({"project_id": project}).encode()
    headers = {"content-type": "application/json", "authorization": "Basic x"}
    with urllib.request.urlopen(urllib.request.Request(url + "/feedback/query", body, headers)) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["result"]
    return rows
