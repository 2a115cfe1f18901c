"""Which part of the agent's response is which LLM call's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autotrace.trajectory.model import Span


class Piece(NamedTuple):
    """Tokens of the agent's response."""

    start: int
    length: int


def pieces(turns: Sequence[Span], whole: Span | None) -> dict[str, Piece] | None:
    """Span id of each of ``turns`` -> what of ``whole``'s response it is; None where they are no pieces of one response
    (the agent began anew, or left a turn out), or where tokens are missing."""
    response = None if whole is None else whole.response_ids
    if response is None or not turns or turns[0].prompt_tokens is None:
        return None
    first, parts = turns[0].prompt_tokens, dict[str, Piece]()
    for span in turns:
        ids, start = span.response_ids, (span.prompt_tokens or 0) - first
        if ids is None or start < 0:
            return None
        part = response[start : start + len(ids)]
        if part != ids[: len(part)]:
            return None
        parts[span.span_id] = Piece(start, len(part))
    return parts


def whole_response(spans: Sequence[Span]) -> Span | None:
    """The call that has the whole conversation: the agent's."""
    having = (span for span in spans if span.role not in ("llm", "engine"))
    return next((span for span in having if span.response_mask or span.response_ids or span.response_text), None)
