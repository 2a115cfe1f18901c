"""What people call the calls of a trajectory: ``turn 2``, the name of the tool, of the agent, of a graph's node."""

from __future__ import annotations

from collections.abc import Sequence

from autotrace.trajectory.model import Span, own_llm_calls
from autotrace.trajectory.tool_names import tool_name, word

_NAMED = ("agent", "span")
"""Roles of which a list's attribute ``name`` says what the call is a call of."""


def entitle(spans: Sequence[Span]) -> None:
    """Fill ``title`` of the agent's LLM calls and of its tool calls. A tool's own method below the agent's call of it
    keeps its name, which says what of the tool it is."""
    tools = {span.span_id for span in spans if span.role == "tool"}
    for span in spans:
        if span.role == "tool" and span.parent_id not in tools:
            span.title = tool_name(span)
        elif span.role in _NAMED:
            span.title = word(span.attributes.get("name"))
    for number, span in enumerate(own_llm_calls(spans), 1):
        span.title = f"turn {number}"
        if "." not in span.name and span.name != span.key.rpartition(".")[2]:  # the list calls it so, not the code
            span.title += f" · {span.name}"
