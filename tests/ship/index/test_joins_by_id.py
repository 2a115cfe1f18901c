"""Calls and facts of another process that say which trajectory they are of, by the id that the host has for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.spool.records import OF, REQUEST, Fact
from tests.ship.spools import ANSWER, PROMPT, Process, new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


class Rollout:
    """A trajectory that says what it is called."""

    def __init__(self, run: Path, name: str) -> None:
        self.name, self.trace = name, os.urandom(16)
        self.process = Process(run, f"rollout-{ord(name)}-aa")
        self.root = self.process.open(self.trace, "trajectory")

    def say(self) -> None:
        key = {"request": self.name, "span": self.root}
        self.process.write(Fact(self.trace, key, REQUEST, None, self.process.tick()))

    def end(self) -> None:
        self.process.close(self.trace, self.root)
        self.process.exit()


def served(process: Process, name: str) -> None:
    trace = os.urandom(16)
    span = process.open(trace, "llm", prompt=PROMPT, attributes={OF: name})
    process.close(trace, span, ANSWER)


@pytest.mark.parametrize("first", ["rollout", "calls"])
def test_calls_of_a_server_belong_to_their_trajectories(run: Path, first: str) -> None:
    rollouts = [Rollout(run, name) for name in ("a", "b")]
    server = Process(run, "server-1-aa")
    for step in ("rollout", "calls") if first == "rollout" else ("calls", "rollout"):
        if step == "rollout":
            for rollout in rollouts:
                rollout.say()
        else:
            for name in ("a", "b", "a"):
                served(server, name)
        of_run(run)  # each is read before the other was written
    server.exit()
    for rollout in rollouts:
        rollout.end()
    reader = of_run(run)
    assert {row.trace_id: row.llm_calls for row in reader.select(roots=True)} == {
        rollouts[0].trace.hex(): 2,
        rollouts[1].trace.hex(): 1,
    }
    for rollout in rollouts:
        trajectory = reader.load(rollout.trace.hex())
        assert {call.parent_id for call in trajectory.llm_spans} == {trajectory.root.span_id}
        assert {call.attributes[OF] for call in trajectory.llm_spans} == {rollout.name}


@pytest.mark.parametrize("first", ["fact", "id"])
def test_facts_by_id(run: Path, first: str) -> None:
    rollout, scorer = Rollout(run, "a"), Process(run, "scorer-1-aa")
    for step in ("fact", "id") if first == "fact" else ("id", "fact"):
        if step == "id":
            rollout.say()
        else:
            scorer.write(Fact(b"", {"of": "a"}, "reward", 0.5, scorer.tick()))
            scorer.write(Fact(b"", {"of": "nobody"}, "reward", 0.7, scorer.tick()))
        of_run(run)
    rollout.end()
    scorer.exit()
    (row,) = of_run(run).select(roots=True)
    assert row.reward == 0.5


def test_a_call_whose_trajectory_never_comes_is_delivered_at_the_end(run: Path) -> None:
    server = Process(run, "server-1-aa")
    served(server, "nobody")
    server.exit()
    ship(run, once=True)
    (row,) = of_run(run).select(roots=True)
    assert (row.llm_calls, row.status) == (1, "OK")
