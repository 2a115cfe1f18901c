"""Where a phrase occurs: in what models said and were asked, and in what tools were given and returned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import input_text, output_text
from autotrace.trajectory.tool_calls import text_of
from autotrace.trajectory.tool_names import tool_name

AROUND = 40
"""Characters shown on each side."""
ROLES = ("assistant", "prompt", "tool")
"""``assistant``: what models said; ``prompt``: what they were given; ``tool``: arguments and results of tools."""


@dataclass(frozen=True)
class Match:
    """One place."""

    turn: int | None
    role: str
    """Of ``ROLES``."""
    where: str
    """``answer``, ``prompt``, ``arguments of search``, ``result of search``."""
    at: int
    """Characters from the beginning of that text."""
    before: str
    text: str
    after: str


def search(trajectory: Trajectory, pattern: re.Pattern[str], roles: frozenset[str]) -> Iterator[Match]:
    """The places in a trajectory whose texts were decoded, in order."""
    turns = trajectory.llm_spans
    numbers = {span.span_id: number for number, span in enumerate(turns, 1)}
    for span in trajectory.spans:
        turn = numbers.get(span.span_id)
        if turn is None and span.role == "tool":
            turn = sum(call.start_ns <= span.start_ns for call in turns) or None
        for role, where, text in _texts(span, span.span_id in numbers):
            if role in roles:
                yield from _matches(pattern, text(), turn, role, where)


def _texts(span: Span, is_turn: bool) -> Iterator[tuple[str, str, Callable[[], str | None]]]:
    if is_turn:
        yield "prompt", "prompt", lambda: input_text(span)
        yield "assistant", "answer", lambda: output_text(span)
    elif span.role == "tool":
        name = tool_name(span)
        yield "tool", f"arguments of {name}", lambda: _plain(span.inputs)
        yield "tool", f"result of {name}", lambda: span.error_text or text_of(span.output) or _plain(span.output)


def _plain(value: object) -> str | None:
    import json

    from autotrace.trajectory.jsonable import jsonable

    return None if value in (None, {}, []) else json.dumps(jsonable(value), ensure_ascii=False)


def _matches(pattern: re.Pattern[str], text: str | None, turn: int | None, role: str, where: str) -> Iterator[Match]:
    for match in pattern.finditer(text or ""):
        begin, end = match.span()
        if begin == end:
            continue
        whole = text or ""
        before, after = whole[max(0, begin - AROUND) : begin], whole[end : end + AROUND]
        yield Match(turn, role, where, begin, before, match[0], after)
