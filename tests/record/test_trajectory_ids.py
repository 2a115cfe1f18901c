"""Calls that are made outside of their trajectory and say which one they are of."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.record import calls, faults, trajectory_ids
from autotrace.spool.records import OF, REQUEST, Fact, Open

from .conftest import Recorder


@pytest.fixture(autouse=True)
def unknown() -> Iterator[None]:
    yield
    trajectory_ids.forget()


class Server:
    """Model calls in a task of its own, as verifiers' interception server makes them."""

    def __init__(self, recorder: Recorder) -> None:
        async def ask(session_id: str) -> str:
            return f"for {session_id}"

        self.asking = recorder.wrap(ask, key="ask", role="llm", of=("session_id",))

    async def handle(self, session_id: str) -> str:
        loop = asyncio.get_running_loop()
        return str(await contextvars.Context().run(loop.create_task, self.asking(session_id)))


def program(recorder: Recorder, server: Server) -> Any:
    async def rollout(self: Any) -> str:
        open_rollout(self)
        return await server.handle(self.id)

    def open_rollout(self: Any) -> None:
        pass

    open_rollout = recorder.wrap(open_rollout, key="open", role="env", id=("self.id",))
    return recorder.wrap(rollout, key="rollout", role="trajectory")


def test_a_call_of_a_named_trajectory_keeps_the_functions_signature(recorder: Recorder) -> None:
    def score(rollout: str) -> int:
        return 1

    traced = recorder.wrap(score, key="score", role="reward", of=("rollout",))
    probe, looked = calls.probes["score"], []
    probe.watch = lambda function, args: looked.append(args)
    signatures = set()
    for number in range(3):
        traced(str(number))
        signatures |= {id(each) for each in probe.local_signatures.values()}
    assert len(signatures) == 1 and looked == [("0",)]


def test_a_number_that_is_no_id_is_passed_over(recorder: Recorder) -> None:
    def ask(of: int) -> int:
        return 1

    assert recorder.wrap(ask, key="ask", role="llm", of=("of",), id=("of",))(10**5_000) == 1
    assert len(recorder.records(Open)) == 1 and not faults.counts


async def test_a_call_in_another_context_finds_its_trajectory(recorder: Recorder) -> None:
    rollout = program(recorder, Server(recorder))
    assert await asyncio.gather(*(rollout(SimpleNamespace(id=name)) for name in "ab")) == ["for a", "for b"]
    opened = recorder.records(Open)
    roots = {record.trace: record for record in opened if not record.parent}
    asked = [record for record in opened if (record.attributes or {}).get(OF)]
    assert len(roots) == 2
    assert sorted(record.attributes[OF] for record in asked) == ["a", "b"]
    assert all(record.parent == roots[record.trace].span for record in asked)
    named = {fact.trace: fact.key["request"] for fact in recorder.records(Fact) if fact.name == REQUEST}
    assert all(named[record.trace] == record.attributes[OF] for record in asked)


async def test_a_handler_that_inherited_another_rollouts_context_is_not_fooled(recorder: Recorder) -> None:
    server = Server(recorder)

    async def rollout(self: Any, others: str) -> None:
        named(self)
        await server.asking(others)

    def named(self: Any) -> None:
        pass

    named = recorder.wrap(named, key="named", role="env", id=("self.id",))
    rollout = recorder.wrap(rollout, key="rollout", role="trajectory")
    await rollout(SimpleNamespace(id="one"), "one")
    await rollout(SimpleNamespace(id="two"), "one")
    await rollout(SimpleNamespace(id="three"), "of another process")
    opened = recorder.records(Open)
    roots = [record for record in opened if not record.parent and record.attributes is None]
    one, again, elsewhere = [record for record in opened if (record.inputs or {}).get("session_id")]
    assert one.trace == again.trace == roots[0].trace
    assert elsewhere.parent == 0
    assert elsewhere.attributes == {OF: "of another process"}
    assert elsewhere.trace not in {root.trace for root in roots}


async def test_calls_of_a_trajectory_that_is_not_recorded_are_not_either(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = program(recorder, Server(recorder))
    monkeypatch.setattr(calls, "decide", lambda attributes: False)
    assert await rollout(SimpleNamespace(id="a")) == "for a"
    assert recorder.records(Open) == []


def test_an_id_that_only_the_result_tells(recorder: Recorder) -> None:
    def rollout() -> Any:
        return SimpleNamespace(id="late")

    def score(name: str) -> None:
        pass

    recorder.wrap(rollout, role="trajectory", id=("result.id",))()
    recorder.wrap(score, role="reward", of=("name",))("late")
    first, second = recorder.records(Open)
    assert (second.trace, second.parent) == (first.trace, first.span)


def test_the_oldest_trajectories_are_forgotten(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory_ids, "MAX_KNOWN", 3)

    def rollout(name: str) -> None:
        pass

    traced = recorder.wrap(rollout, role="trajectory", id=("name",))
    for number in range(10):
        traced(f"{number}")
    assert len(trajectory_ids._known) == 3
