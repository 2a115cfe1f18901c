"""What is not stored of a trajectory, because it follows from the rest: titles, and whole prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotrace.trajectory.bounds import Allowance, flattened
from autotrace.trajectory.deferred import Deferred
from autotrace.trajectory.model import Span
from autotrace.trajectory.tool_calls import entitle


def connected(spans: list[Span]) -> list[Span]:
    """``spans`` with it."""
    flattened(spans)
    by_id, allowance = {span.span_id: span for span in spans}, Allowance()
    for span in spans:
        new = span.new_prompt_ids
        if new is not None and span.prompt_keep >= 0 and allowance.take(span.prompt_keep + len(new)):
            span.prompt_ids = Deferred(lambda span=span: _prompt(span, by_id))  # type: ignore[misc]
    entitle(spans)
    return spans


def _prompt(span: Span, by_id: dict[str, Span]) -> list[int] | None:
    """Turn by turn back to the first one, from each what is still missing."""
    pieces, missing, at, hops = [span.new_prompt_ids or []], span.prompt_keep, span, 0
    while missing > 0:
        base = by_id.get(at.prompt_base or "")
        if base is None or base.new_prompt_ids is None or hops > len(by_id):
            return None
        added = [*base.new_prompt_ids, *(base.response_ids or ())]
        if missing > base.prompt_keep + len(added):
            return None
        pieces.append(added[: max(0, missing - base.prompt_keep)])
        missing, at, hops = min(missing, base.prompt_keep), base, hops + 1
    return [id for piece in reversed(pieces) for id in piece]


def as_error(parts: Sequence[Any] | None) -> tuple[str, str, str] | None:
    """Type, message and stack of a call's error."""
    if not parts or not any(parts):
        return None
    kind, message, stack = (["" if part is None else str(part) for part in parts] + ["", "", ""])[:3]
    return kind, message, stack
