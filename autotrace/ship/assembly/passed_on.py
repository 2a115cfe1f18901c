"""Calls of a tool that were passed on: toolsets are wrapped in toolsets (prefixes, approval, limits), and a list with
``subclasses: true`` records each of them. It is one call, that of the outermost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from autotrace.trajectory.model import Span
from autotrace.trajectory.tool_names import BESIDE_NAME, named_tool

PASSED_ON = "passed_on"
"""Attribute: how many calls of the same target, each inside of the one before, only passed this one on."""


def join_passed_on(spans: list[Span]) -> list[Span]:
    """``spans`` without each call of a tool that is all that a call of the same target made of tools, by the same name,
    with the same arguments and the same end; what it called stands below the outermost of them, which counts them.

    A wrapper that tried twice, or made an error an answer, is shown with what it called.
    """
    tools: dict[str, Span] = {}
    inside: list[tuple[Span, Span]] = []
    for span in spans:
        if span.role == "tool":
            outer = tools.get(span.parent_id or "")  # one that began before it: no circle comes of it
            if outer is not None:
                inside.append((outer, span))
            tools[span.span_id] = span
    alone = Counter(outer.span_id for outer, _ in inside)
    passed = {
        inner.span_id: outer.span_id for outer, inner in inside if alone[outer.span_id] == 1 and _is_same(outer, inner)
    }
    if not passed:
        return spans
    for inner in passed:
        outermost = tools[_outermost(inner, passed)].attributes
        outermost[PASSED_ON] = outermost.get(PASSED_ON, 0) + 1
    left = [span for span in spans if span.span_id not in passed]
    for span in left:
        if span.parent_id in passed:
            span.parent_id = _outermost(span.parent_id, passed)
    return left


def _outermost(span_id: str, passed: dict[str, str]) -> str:
    while span_id in passed:
        span_id = passed[span_id]
    return span_id


def _is_same(outer: Span, inner: Span) -> bool:
    if (outer.key, outer.status) != (inner.key, inner.status):
        return False
    name = named_tool(outer)
    return name is not None and name == named_tool(inner) and _given(outer) == _given(inner)


def _given(span: Span) -> dict[str, Any]:
    """What the tool is given, without what one toolset tells another (its context, its own tool)."""
    given = {name: value for name, value in span.inputs.items() if name in BESIDE_NAME}
    return given or span.inputs
