"""List the tool calls of a trajectory as the agent made the calls: tool, arguments, answer. Choose the displayed names
of calls: ``turn 2``, ``search`` rather than ``Agent.call_tool``, the name of an agent."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from autotrace.trajectory.deferred import cached
from autotrace.trajectory.jsonable import jsonable, text
from autotrace.trajectory.model import Span, Trajectory, above, own_calls

ATTRIBUTE = "tool_name"
OBJECT_NAME = "object_name"
"""Attribute with the ``name`` of the object whose method is the tool (``record.probe``)."""
MAX_NAME = 200
"""Maximum characters of a name."""
_ARGUMENTS = ("tool_call", "tool_name", "function_name", "tool")
"""Arguments that name the tool, or have a ``name`` that does."""
BESIDE_NAME = frozenset({"args", "arguments", "input", "kwargs", "parameters", "params", "tool_args", "tool_input"})
"""Arguments beside which an argument ``name`` is the tool's name, not an input of the tool."""


def tool_name(span: Span) -> str:
    """Return the attribute ``tool_name``, else an argument, else the name of the object, else the called function."""
    return named_tool(span) or word(span.attributes.get(OBJECT_NAME)) or text(span.name)


def named_tool(span: Span) -> str | None:
    """Return the name by which the call asks for the tool: the attribute ``tool_name``, else an argument."""
    return word(span.attributes.get(ATTRIBUTE)) or _argument(span)


def _argument(span: Span) -> str | None:
    for argument in _ARGUMENTS:
        value = span.inputs.get(argument)
        if value is not None and (name := _named(value)) is not None:
            return name
    if "tool" in span.name.rpartition(".")[2].lower() or BESIDE_NAME & span.inputs.keys():
        return word(span.inputs.get("name"))
    return None


def _named(value: Any) -> str | None:
    """Return the name in ``"search"``, ``{"name": "search"}`` or ``{"function": {"name": "search"}}``."""
    if isinstance(value, dict):
        inner = value.get("function")
        return word(value.get("name")) or (_named(inner) if isinstance(inner, (str, dict)) else None)
    return word(value)


def word(value: Any) -> str | None:
    """Return a text as a single line; None for anything else."""
    return " ".join(text(value).split())[:MAX_NAME] or None if isinstance(value, str) else None


_sorted = msgspec.json.Encoder(enc_hook=repr, order="sorted").encode
_NAMED = ("agent", "span")
"""Roles whose calls the attribute ``name`` of a spec names."""


def entitle(spans: Sequence[Span]) -> None:
    """Set ``title`` of the agent's LLM calls and tool calls. A tool's own method below the agent's tool call keeps its
    name, which tells the part of the tool."""
    for span in own_calls(spans, "tool"):
        span.title = tool_name(span)
    for span in spans:
        if span.role in _NAMED:
            span.title = word(span.attributes.get("name"))
    for number, span in enumerate(own_calls(spans), 1):
        span.title = f"turn {number}"
        if "." not in span.name and span.name != span.key.rpartition(".")[2]:  # the spec gave the name, not the code
            span.title += f" · {span.name}"


@dataclass
class ToolCall:
    """Describe a tool call, as the agent made the call, with nested calls."""

    span: Span
    turn: int
    """Turn before the call; 0: none."""
    inner: list[Span] = field(default_factory=list)
    """Nested calls of the tool itself."""

    @cached
    def name(self) -> str:
        return self.span.title or tool_name(self.span)

    @cached
    def failed(self) -> Span | None:
        """Return the call that raised: the tool call, or the deepest nested call."""
        return next((span for span in (*reversed(self.inner), self.span) if span.error), None)

    @cached
    def answer(self) -> str:
        """Return the answer to the agent as text; empty: no text."""
        return text_of(self.span.output)

    @cached
    def arguments(self) -> str:
        """Return the tool's arguments as text, independent of their order."""
        called, inputs = self.span.inputs.get("tool_call"), self.span.inputs
        beside = sorted(BESIDE_NAME & inputs.keys()) if "name" in inputs else []
        given = inputs[beside[0]] if beside else inputs.get("parameters", inputs)
        return arguments_text(called.get("arguments") if isinstance(called, dict) else given)

    @cached
    def told(self) -> str:
        """Return the outcome in words: the error, the text, else the return value."""
        return self.span.error_text or self.answer or (_json(self.span.output) if self.span.output else "")

    @cached
    def exchange(self) -> str:
        """Return the complete input and outcome, text or not, for comparison."""
        said = [self.span.inputs, self.failed.error_text if self.failed is not None else self.span.output]
        try:
            text = _sorted(said)
            return text.decode() if b'"{' not in text else _sorted(_decoded(said)).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):  # not assembled by autotrace
            return repr(said)

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


def arguments_text(given: Any) -> str:
    """Format arguments, or their JSON, as text, independent of their order."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return str(given)
    if not isinstance(given, dict):
        return _json(given)
    return ", ".join(f"{name}={_json(given[name])}" for name in sorted(given, key=str))


def tool_calls(trajectory: Trajectory) -> list[ToolCall]:
    """Return the tool calls in order."""
    starts = sorted(span.start_ns for span in trajectory.llm_spans)
    own = own_calls(trajectory.spans, "tool")
    made = {span.span_id: ToolCall(span, bisect_right(starts, span.start_ns)) for span in own}
    calls = list(made.values())
    for span in trajectory.spans:
        if span.role == "tool" and span.span_id not in made:
            outer = above(span, trajectory.by_id, ("tool",))
            if outer is not None and outer.span_id in made:
                made[outer.span_id].inner.append(span)
                made[span.span_id] = made[outer.span_id]
    return calls


def text_of(value: Any, depth: int = 0) -> str:
    """Return the text in a tool's return value: ``"4"``, ``{"text": "4"}``, ``[{"text": "4"}, 0.0, {}]``; empty: no
    text."""
    if isinstance(value, str) or depth > 3:
        return value if isinstance(value, str) else ""
    if isinstance(value, dict):
        texts = (text_of(value.get(name), depth + 1) for name in ("text", "content", "result", "output", "error"))
        return next(filter(None, texts), "")
    return text_of(value[0], depth + 1) if isinstance(value, (list, tuple)) and value else ""


def _json(value: Any) -> str:
    """Format ``value`` as JSON with sorted keys."""
    return json.dumps(jsonable(value), ensure_ascii=False, sort_keys=True)


def _decoded(value: Any, depth: int = 8) -> Any:
    """Decode texts in ``value`` that are JSON objects."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value, parse_constant=str)  # otherwise NaN would be written like null
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict) and depth:
        return {name: _decoded(part, depth - 1) for name, part in value.items()}
    return [_decoded(part, depth - 1) for part in value] if isinstance(value, list) and depth else value
