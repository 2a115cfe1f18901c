"""Toolsets in toolsets: one call of a tool is one span."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.ship.assembly.llm_calls import join_passed_on
from autotrace.trajectory.model import Span


def call(id: str, parent: str | None, role: str = "tool", name: str = "add", **fields: Any) -> Span:
    inputs = {"name": name, "tool_args": {"a": 2}, "ctx": {"…": f"a context of {id}"}}
    key = fields.pop("key", "toolsets.AbstractToolset.call_tool")
    span = Span(id, parent, f"{id}.call_tool", role, key, len(id), inputs=inputs, status="OK")
    for field, value in fields.items():
        setattr(span, field, value)
    return span


def shape(spans: list[Span]) -> list[tuple[str, str | None]]:
    return [(span.span_id, span.parent_id) for span in join_passed_on(spans)]


def test_wrappers_of_toolsets_are_one_call_and_say_so() -> None:
    spans = [
        call("root", None, "agent"),
        *(call(id, above) for id, above in (("a", "root"), ("b", "a"), ("c", "b"), ("d", "c"))),
        call("request", "d", "span"),
    ]
    left = join_passed_on(spans)
    assert [(span.span_id, span.parent_id) for span in left] == [("root", None), ("a", "root"), ("request", "a")]
    assert left[1].attributes == {"passed_on": 3}


@pytest.mark.parametrize(
    "inner",
    [
        [call("b", "a", name="subtract")],
        [call("b", "a", inputs={"name": "add", "tool_args": {"a": 3}})],
        [call("b", "a", status="ERROR")],
        [call("b", "a"), call("c", "a")],
        [call("b", "a", key="others.Toolset.call_tool")],
        [call("b", "a", inputs={"query": "cats"}, name="search")],
    ],
    ids=("another tool", "other arguments", "an error that was handled", "tried twice", "another target", "not named"),
)
def test_what_is_not_the_same_call_stays(inner: list[Span]) -> None:
    spans = [call("a", None), *inner]
    assert shape(spans) == [(span.span_id, span.parent_id) for span in spans]


def test_ensembles_of_tools_that_only_their_objects_name_stay() -> None:
    outer = call("all", None, inputs={"query": "cats"}, attributes={"object_name": "all"})
    inner = call("one", "all", inputs={"query": "cats"}, attributes={"object_name": "one"})
    assert shape([outer, inner]) == [("all", None), ("one", "all")]


def test_callers_in_a_circle_are_no_trouble() -> None:
    assert len(join_passed_on([call("a", "b"), call("b", "a")])) == 1
