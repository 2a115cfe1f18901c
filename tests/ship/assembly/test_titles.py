"""What people call the calls of a trajectory."""

from __future__ import annotations

from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.tool_calls import entitle


def span(id: str, parent: str | None, role: str, name: str, key: str = "") -> Span:
    return Span(id, parent, name, role, key or f"agents.{name}", 0, attributes={"object_name": id})


def test_turns_are_counted_and_tools_have_their_names() -> None:
    spans = [
        span("root", None, "trajectory", "Agent.solve"),
        span("first", "root", "llm", "Client.create"),
        span("search", "root", "tool", "Search.run"),
        span("inner", "search", "tool", "Search.fetch"),
        span("judge", "search", "llm", "Client.create"),
        span("second", "root", "llm", "planner", "agents.Client.create"),
    ]
    entitle(spans)
    assert {one.span_id: one.title for one in spans if one.title} == {
        "first": "turn 1",
        "search": "search",
        "second": "turn 2 · planner",
    }
    trajectory = Trajectory("t", "r", spans)
    assert [one.span_id for one in trajectory.llm_spans] == ["first", "second"] and trajectory.turns == 2
