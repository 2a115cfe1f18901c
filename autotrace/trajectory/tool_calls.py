"""The tool calls of a trajectory, as the agent made them: of which tool, what it was told, what came of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec

from autotrace.trajectory.deferred import cached
from autotrace.trajectory.model import Span, Trajectory, above
from autotrace.trajectory.tool_names import tool_name


@dataclass
class ToolCall:
    """One call of a tool, as the agent made it, with what it called to get its answer."""

    span: Span
    turn: int
    """The turn before it; 0: none."""
    inner: list[Span] = field(default_factory=list)
    """Calls of the tool's own below it."""

    @cached
    def name(self) -> str:
        return self.span.title or tool_name(self.span)

    @cached
    def failed(self) -> Span | None:
        """The call that raised: this one, or the deepest below it."""
        return next((span for span in (*reversed(self.inner), self.span) if span.error), None)

    @cached
    def answer(self) -> str:
        """What the agent was told, as text; empty: nothing that is text."""
        return text_of(self.span.output)

    @cached
    def arguments(self) -> bytes:
        """What it was asked, in one piece: to be compared, in whatever order it was said."""
        return _comparable(self.span.inputs)

    @cached
    def result(self) -> bytes:
        """What came of it, text or not, to be compared."""
        return _comparable(self.failed.error_text if self.failed is not None else self.span.output)


def tool_calls(trajectory: Trajectory) -> list[ToolCall]:
    """In order. A tool's own method below the agent's call of it is the same call; what a reward calls is none."""
    starts = sorted(span.start_ns for span in trajectory.llm_spans)
    made: dict[str, ToolCall] = {}
    caller: str | None = ""
    outer = judge = None
    for span in trajectory.spans:
        if span.role != "tool":
            continue
        if span.parent_id != caller:  # most of them have the same
            caller, outer = span.parent_id, above(span, trajectory.by_id, ("tool",))
            judge = above(span, trajectory.by_id, ("reward",))
        if outer is not None and outer.span_id in made:
            made[outer.span_id].inner.append(span)
            made[span.span_id] = made[outer.span_id]
        elif judge is None:
            made[span.span_id] = ToolCall(span, bisect_right(starts, span.start_ns))
    return list({id(call): call for call in made.values()}.values())


def text_of(value: Any, depth: int = 0) -> str:
    """The text of what a tool returned: ``"4"``, ``{"text": "4"}``, ``[{"text": "4"}, 0.0, {}]``; empty: none."""
    if isinstance(value, str) or depth > 3:
        return value if isinstance(value, str) else ""
    if isinstance(value, dict):
        texts = (text_of(value.get(name), depth + 1) for name in ("text", "content", "result", "output", "error"))
        return next(filter(None, texts), "")
    return text_of(value[0], depth + 1) if isinstance(value, (list, tuple)) and value else ""


def _comparable(value: Any) -> bytes:
    try:
        return msgspec.json.encode(_ordered(value))
    except (TypeError, ValueError, OverflowError):  # values that are not plain: not from our assembly
        return repr(value).encode("utf-8", "replace")


def _ordered(value: Any, depth: int = 0) -> Any:
    """``value`` with the names of its objects in order, also of those that are written as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    if isinstance(value, dict) and depth < 8:
        return [(name, _ordered(part, depth + 1)) for name, part in sorted(value.items(), key=itemgetter(0))]
    return value
