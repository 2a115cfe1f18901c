"""Requests whose context was lost on the way to the engine are joined to their call by the request's id."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.spool.records import REQUEST, Fact
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


class Agent:
    """Two turns, in a process of its own."""

    def __init__(self, run: Path, name: str) -> None:
        self.process = Process(run, f"agent-{name}-aa")
        self.trace = os.urandom(16)
        self.root = self.process.open(self.trace, "trajectory", attributes={"uid": name})

    def turn(self, request_id: str, prompt: list[int], answer: list[int]) -> None:
        span = self.process.open(self.trace, "llm", self.root, prompt)
        key = {"request": request_id, "span": span}
        self.process.write(Fact(self.trace, key, REQUEST, None, self.process.tick()))
        self.process.close(self.trace, span, answer)

    def talk(self) -> None:
        self.turn("first", PROMPT, ANSWER)
        self.turn("second", PROMPT + ANSWER + TOOL, FINAL)

    def end(self) -> None:
        self.process.close(self.trace, self.root)
        self.process.exit()


def serve(process: Process, request_id: str, prompt: list[int], answer: list[int]) -> bytes:
    trace = os.urandom(16)
    server = process.open(trace, "engine", prompt=prompt, attributes={"request_id": request_id})
    request = process.open(trace, "engine", server, prompt)
    process.close(trace, request, answer)
    process.close(trace, server, answer)
    return trace


def joined(run: Path, agent: Agent) -> None:
    index = of_run(run)
    assert [row.trace_id for row in index.select(roots=True)] == [agent.trace.hex()]
    trajectory = index.load(agent.trace.hex())
    spans = {span.span_id: span for span in trajectory.spans}
    calls = trajectory.llm_spans
    servers = [span for span in trajectory.spans if span.role == "engine" and spans[span.parent_id or ""].role == "llm"]
    assert [server.parent_id for server in servers] == [call.span_id for call in calls]
    assert [server.response_ids for server in servers] == [call.response_ids for call in calls] == [ANSWER, FINAL]
    assert [server.prompt_ids for server in servers] == [PROMPT, PROMPT + ANSWER + TOOL]
    assert len(trajectory.spans) == 7 and not trajectory.notes and trajectory.turns == 2
    (row,) = index.select(roots=True)
    assert (row.spans, row.status) == (7, "OK")


@pytest.mark.parametrize("suffix", ["", "_D", "-0a1b2c3d"])
def test_whichever_side_is_read_first(run: Path, tmp_path: Path, suffix: str) -> None:
    for place, name in ((run, "1"), (new_run(tmp_path, "other"), "9")):  # segments are read in the order of their names
        engine, agent = Process(place, "engine-5-aa" if name == "1" else "aaa-5-aa"), Agent(place, name)
        agent.talk()
        serve(engine, f"first{suffix}", PROMPT, ANSWER)
        serve(engine, f"second{suffix}", PROMPT + ANSWER + TOOL, FINAL)
        engine.exit()
        agent.end()
        ship(place, once=True)
        joined(place, agent)


def test_records_that_come_later_and_a_collector_that_starts_anew(run: Path) -> None:
    engine, agent = Process(run, "aaa-5-aa"), Agent(run, "1")
    steps: list[Callable[[], Any]] = [
        lambda: agent.turn("first", PROMPT, ANSWER),
        lambda: serve(engine, "first", PROMPT, ANSWER),
        lambda: agent.turn("second", PROMPT + ANSWER + TOOL, FINAL),
        lambda: serve(engine, "second", PROMPT + ANSWER + TOOL, FINAL),
    ]
    for step in steps:
        step()
        list(of_run(run).select(roots=True))
    engine.exit()
    agent.end()
    ship(run, once=True)
    joined(run, agent)
    ship(run, once=True)
    joined(run, agent)


def test_what_nobody_asked_for_stays_a_trace_of_its_own(run: Path) -> None:
    engine, agent = Process(run, "aaa-5-aa"), Agent(run, "1")
    alone = serve(engine, "from-elsewhere", PROMPT, ANSWER)
    agent.talk()
    engine.exit()
    agent.end()
    ship(run, once=True)
    assert {row.trace_id for row in of_run(run).select(roots=True)} == {alone.hex(), agent.trace.hex()}
