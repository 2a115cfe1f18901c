"""Which part of the agent's response is which LLM call's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.model import Span, Trajectory


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


def is_row(span: Span) -> bool:
    """Whether it is one of the rows that a call returned (``chains`` of a list)."""
    return span.role == "agent" and type(span.attributes.get("row")) is int


def whole_response(spans: Sequence[Span]) -> Span | None:
    """The call that has the whole conversation: the agent's, or the last of the rows that it returned."""
    having = (span for span in spans if span.role not in ("llm", "engine"))
    answers = (span for span in having if span.response_mask or span.response_ids or span.response_text)
    first = next(answers, None)
    return [first, *answers][-1] if first is not None and is_row(first) else first


def answered_path(trajectory: Trajectory, whole: Span | None) -> list[int]:
    """The turns, from 1, of the chain that is the response of ``whole``; where none fits, or there is no response,
    those of the chain that ended last."""
    paths = tree_of(trajectory).paths()
    if len(paths) < 2:
        return paths[0] if paths else []
    return next((path for path in paths if _whole_of(trajectory, path, whole)), paths[0])


def own_pieces(trajectory: Trajectory, whole: Span | None) -> dict[str, Piece] | None:
    """``pieces`` of the turns of ``answered_path``; where the trajectory branches, None for what is not one chain."""
    path = answered_path(trajectory, whole)
    if len(tree_of(trajectory).chains) > 1:
        return _whole_of(trajectory, path, whole)
    return pieces([trajectory.llm_spans[turn - 1] for turn in path], whole)


def _whole_of(trajectory: Trajectory, path: Sequence[int], whole: Span | None) -> dict[str, Piece] | None:
    """Their pieces, if these reach to the end of the response."""
    places = pieces([trajectory.llm_spans[turn - 1] for turn in path], whole)
    if not places or whole is None:
        return None
    last = places[trajectory.llm_spans[path[-1] - 1].span_id]
    return places if last.start + last.length == len(whole.response_ids or ()) else None
