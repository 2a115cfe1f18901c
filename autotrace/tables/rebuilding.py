"""What is not stored of a trajectory, because it follows from the rest: titles, and whole prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotrace.trajectory.deferred import Deferred
from autotrace.trajectory.model import Span
from autotrace.trajectory.titles import entitle


def connected(spans: list[Span]) -> list[Span]:
    """``spans`` with it."""
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.new_prompt_ids is not None:
            span.prompt_ids = Deferred(lambda span=span: _prompt(span, by_id))  # type: ignore[misc]
    entitle(spans)
    return spans


def _prompt(span: Span, by_id: dict[str, Span]) -> list[int] | None:
    """Turn by turn from the first one on: a chain of a thousand turns would be too deep to recurse."""
    chain: list[Span] = []
    above: Span | None = span
    while above is not None and len(chain) <= len(by_id):
        chain.append(above)
        above = by_id.get(above.prompt_base or "")
    prompt: list[int] = []
    before: list[int] = []
    for each in reversed(chain):
        if each.new_prompt_ids is None or each.prompt_keep > len(before):
            return None
        prompt = [*before[: each.prompt_keep], *each.new_prompt_ids]
        before = [*prompt, *(each.response_ids or ())]
    return prompt


def as_error(parts: Sequence[Any] | None) -> tuple[str, str, str] | None:
    """Type, message and stack of a call's error."""
    if not parts or not any(parts):
        return None
    kind, message, stack = (["" if part is None else str(part) for part in parts] + ["", "", ""])[:3]
    return kind, message, stack
