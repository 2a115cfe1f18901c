"""A client that is called outside of any recorded call where a spec names a root: not recorded, and the functions
around it are said once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.record.orphans import met
from autotrace.spool.records import Open, Report

from .conftest import Recorder


def create(text: str) -> str:
    return text


class Agent:
    def __init__(self, client: Any) -> None:
        self.client = client

    def ask(self, text: str) -> Any:
        return self.client(text)

    @classmethod
    def made(cls, client: Any) -> Any:
        return cls(client).ask("x")


def solve(client: Any) -> Any:
    return [Agent(client).ask("x") for _ in range(2)]


def named(recorder: Recorder) -> None:
    """A list of the user's names another function as a rollout."""
    recorder.wrap(create, key="agent.rollout", role="trajectory", where="mine.yaml:1")


def reports(recorder: Recorder) -> list[tuple[str, list[str]]]:
    found = [report for report in recorder.records(Report) if report.state == "outside"]
    return [(report.key, report.name.split(" > ")) for report in found]


def test_the_users_functions_around_it_are_named_once(recorder: Recorder) -> None:
    named(recorder)
    client = recorder.wrap(create, role="llm", inside=True)
    assert solve(client) == ["x", "x"] and Agent.made(client) == "x"
    ((key, functions),) = reports(recorder)
    assert key == "create" and not recorder.records(Open)
    here = f"{__name__}.test_the_users_functions_around_it_are_named_once"
    assert functions[-3:] == [here, f"{__name__}.solve", f"{__name__}.Agent.ask"]
    assert not [name for name in functions if name.startswith(("autotrace.", "asyncio.", "pytest", "_pytest"))]


def test_so_it_is_for_a_class_method(recorder: Recorder) -> None:
    named(recorder)
    Agent.made(recorder.wrap(create, role="llm", inside=True))
    ((_, functions),) = reports(recorder)
    assert functions[-2:] == [f"{__name__}.Agent.made", f"{__name__}.Agent.ask"]


def test_inside_of_a_recorded_call_nothing_is_said(recorder: Recorder) -> None:
    client = recorder.wrap(create, role="llm", inside=True)
    recorder.wrap(solve, role="trajectory")(client)
    assert len(recorder.records(Open)) == 3 and not reports(recorder)


def test_a_tool_of_a_client_is_no_question_to_a_model(recorder: Recorder) -> None:
    recorder.wrap(create, role="tool", inside=True)("x")
    recorder.wrap(solve, role="trajectory")(str)
    assert not reports(recorder)


def test_a_fault_of_ours_changes_nothing(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[str]:
        raise LookupError

    named(recorder)
    monkeypatch.setattr("autotrace.record.orphans._callers", broken)
    assert solve(recorder.wrap(create, role="llm", inside=True)) == ["x", "x"]
    with pytest.raises(LookupError):
        met(SimpleNamespace(key="x", follower=None, has_met_outside=False), (), {})
