"""Search for a phrase in the prompts and answers of models, and in the arguments and results of tools.

``autotrace grep`` and the page share this rule. For trajectories in files, the engine preselects the trajectories whose
texts contain the letters that every match has.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.tables.columns import id_of
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import input_text, output_text
from autotrace.trajectory.tool_calls import text_of, tool_name

if sys.version_info >= (3, 11):
    from re import _constants as _codes
    from re import _parser
else:
    import sre_constants as _codes
    import sre_parse as _parser

AROUND = 40
"""Characters shown on each side of a match."""
ROLES = ("assistant", "prompt", "tool")
"""``assistant``: answers of models; ``prompt``: prompts of models; ``tool``: arguments and results of tools."""


@dataclass(frozen=True)
class Match:
    """Describe a match in a text."""

    turn: int | None
    role: str
    """Role, from ``ROLES``."""
    where: str
    """``answer``, ``prompt``, ``arguments of search``, ``result of search``."""
    at: int
    """Characters from the beginning of the text."""
    before: str
    text: str
    after: str


_SHORTEST = 3
"""Minimum letters that make a preselection by the engine worthwhile."""


def candidates(reader: Reader, rows: Sequence[Any], pattern: re.Pattern[str]) -> list[Any]:
    """Return the ``rows`` (with ``columns.ID``) in which ``pattern`` may occur."""
    letters = _letters(pattern)
    if len(letters) < _SHORTEST:
        return list(rows)
    found = reader.containing(letters, in_any_case=bool(pattern.flags & re.IGNORECASE))
    return [row for row in rows if id_of(row) in found]


def _letters(pattern: re.Pattern[str]) -> str:
    """Return the longest run of plain letters, digits and blanks that every match contains: characters that every
    encoding of a text keeps. Empty without such a run."""
    longest = run = ""
    for code, value in _parser.parse(pattern.pattern, pattern.flags):  # type: ignore[attr-defined]
        plain = code is _codes.LITERAL and value < 128 and (chr(value).isalnum() or value == 32)
        run = run + chr(value) if plain else ""
        longest = max(longest, run, key=len)
    return str(longest)


def search(trajectory: Trajectory, pattern: re.Pattern[str], roles: frozenset[str]) -> Iterator[Match]:
    """Yield the matches in a trajectory whose texts were decoded, in order."""
    turns = trajectory.llm_spans
    numbers = {span.span_id: number for number, span in enumerate(turns, 1)}
    starts = sorted(call.start_ns for call in turns)
    for span in trajectory.spans:
        turn = numbers.get(span.span_id)
        if turn is None and span.role == "tool":
            turn = bisect_right(starts, span.start_ns) or None
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
