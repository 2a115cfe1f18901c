"""A tool's name: from the attribute, else an argument, else the object."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.model import Span
from autotrace.trajectory.tool_calls import MAX_NAME, ToolCall, tool_name


def call(inputs: dict[str, Any], name: str = "Agent.call_tool", **attributes: Any) -> Span:
    return Span("1", None, name, "tool", "agents.Agent.call_tool", 0, inputs=inputs, attributes=attributes)


@pytest.mark.parametrize(
    ("span", "name"),
    [
        (call({"name": "given"}, tool_name="said", object_name="held"), "said"),
        (call({"name": "search", "arguments": {}}, object_name="held"), "search"),
        (call({"tool_call": {"name": "search"}}), "search"),
        (call({"tool_call": {"id": "1", "function": {"name": "search", "arguments": "{}"}}}), "search"),
        (call({"tool": {"type": "SearchTool", "name": "search"}}), "search"),
        (call({"tool_name": "search"}), "search"),
        (call({"name": "search", "args": {}}, "Runner.dispatch"), "search"),
        (call({"query": "cats"}, "Search.run", object_name="search"), "search"),
        (call({"name": "Bob"}, "Users.create", object_name="users"), "users"),
        (call({"name": "Bob"}, "Users.create"), "Users.create"),
        (call({"tool_name": ["no", "text"]}), "Agent.call_tool"),
    ],
)
def test_the_first_that_names_it(span: Span, name: str) -> None:
    assert tool_name(span) == name


def test_a_name_that_a_model_made_up_is_one_short_line() -> None:
    assert tool_name(call({"name": "a\n\tb" + "c" * 10_000})) == ("a b" + "c" * 10_000)[:MAX_NAME]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"b": 2, "a": {"d": 1, "c": 0}}', 'a={"c": 0, "d": 1}, b=2'),
        (' \n{"a":1}', "a=1"),
        ("[1,  2]", "[1, 2]"),
        ({"b": "{}", "a": None}, 'a=null, b="{}"'),
        ("{a: 1}", "{a: 1}"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_that_mean_the_same_are_the_same(given: Any, said: str) -> None:
    assert ToolCall(call({"tool_call": {"name": "search", "arguments": given}}), 1).arguments == said


@pytest.mark.parametrize("odd", [{1: 2, "a": 3}, {"x": {1, 2}}, float("nan"), b"\xff", "\ud800"])
def test_what_is_compared_may_be_anything(odd: Any) -> None:
    one, same = (ToolCall(Span("1", None, "t", "tool", "t", 0, inputs={"x": odd}, output=odd), 1) for _ in "ab")
    assert one.exchange == same.exchange != ToolCall(call({"x": 1}), 1).exchange
