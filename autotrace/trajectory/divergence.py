"""Find where trajectories of the same prompt diverge: the first token and the first tool call that differ.

The functions are pure functions of ``Trajectory``; ``autotrace compare`` and the page show the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import answered_words, asked_words, input_text, output_text, shown_answer
from autotrace.trajectory.tool_calls import tool_calls

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Divergence:
    """Describe where two trajectories diverge. ``here`` and ``there`` hold the rest of each trajectory from that
    point."""

    turn: int
    """LLM turn of ``one``, or of ``other`` if ``one`` has no such turn, from 1; 0 without turns."""
    part: str
    """``prompt``, ``answer``, ``end`` (a trajectory has no such turn), ``result`` (of trajectories without a turn) or
    ``unknown``; of calls ``tool``, ``arguments``, ``result``, ``end``."""
    token: int | None
    """Index within the part; None without token ids."""
    here: str
    there: str


def parted(one: Trajectory, other: Trajectory) -> Divergence | None:
    """Return the first token at which ``other`` leaves ``one``; None if both agree to the end.

    Chains are compared with chains in order, chains that leave another chain last. Without token ids, texts are
    compared, then captured values, then numbers of tokens. A part ``unknown`` means that both trajectories agree as far
    as recorded, and that the answer of that turn was not recorded.
    """
    mine, yours = one.llm_spans, other.llm_spans
    if not mine and not yours:
        return _ended(one.root, other.root)
    unknown = None
    trees = (sorted(tree_of(each).chains, key=lambda chain: chain.kind is not None) for each in (one, other))
    for chains in zip_longest(*trees):
        turns = [chain.turns if chain is not None else [] for chain in chains]
        for here, there in zip(*turns, strict=False):
            a, b = mine[here - 1], yours[there - 1]
            divergence = _prompts(here, a, b) or _answers(here, a, b)
            if divergence is not None and divergence.part != UNKNOWN:
                return divergence
            unknown = unknown or divergence
        if len(turns[0]) != len(turns[1]):
            at, longer = min(map(len, turns)), max(turns, key=len)
            nexts = [
                (shown_answer(spans[own[at] - 1]) or "") if len(own) > at else ""
                for spans, own in zip((mine, yours), turns, strict=True)
            ]
            return Divergence(longer[at], "end", None, *nexts)
    return unknown


def _prompts(turn: int, a: Span, b: Span) -> Divergence | None:
    if a.prompt_ids is not None and b.prompt_ids is not None:
        words = (asked_words(a, whole=True), asked_words(b, whole=True))
        return _by_ids(turn, "prompt", (a.prompt_ids, b.prompt_ids), words)
    here, there = _prompt(a), _prompt(b)
    return None if here is None or there is None else _by_text(turn, "prompt", here, there)


def _prompt(span: Span) -> str | None:
    said = asked_words(span, whole=True)
    return input_text(span) if said is None and span.prompt_tokens is None else said


def _answers(turn: int, a: Span, b: Span) -> Divergence | None:
    if a.response_ids is not None and b.response_ids is not None:
        return _by_ids(turn, "answer", (a.response_ids, b.response_ids), (answered_words(a), answered_words(b)))
    here, there = _outcome(a), _outcome(b)
    if here is not None and there is not None:
        return _by_text(turn, "answer", here, there)
    if a.response_tokens != b.response_tokens and None not in (a.response_tokens, b.response_tokens):
        return Divergence(turn, "answer", None, f"{a.response_tokens} tokens", f"{b.response_tokens} tokens")
    return Divergence(turn, UNKNOWN, None, "", "")


def _ended(a: Span, b: Span) -> Divergence | None:
    """Compare the results of trajectories without an LLM call."""
    here, there = _outcome(a), _outcome(b)
    if here is None and there is None:
        return Divergence(0, UNKNOWN, None, "", "")
    return _by_text(0, "result", here or "", there or "")


def _outcome(span: Span) -> str | None:
    if span.error is not None:
        return span.error_text
    said = answered_words(span)  # with tokens recorded, a stop reason is not an answer
    return output_text(span) if said is None and span.response_tokens is None else said


def _by_ids(
    turn: int, part: str, ids: tuple[list[int], list[int]], texts: tuple[str | None, str | None]
) -> Divergence | None:
    if ids[0] == ids[1]:
        return None
    token, (here, there) = shared(*ids), texts
    if here is None or there is None or here == there:  # ids without a text are shown as ids
        return Divergence(turn, part, token, *(" ".join(map(str, side[token:])) for side in ids))
    return _by_text(turn, part, here, there, token)


def _by_text(turn: int, part: str, here: str, there: str, token: int | None = None) -> Divergence | None:
    if here == there:
        return None
    letters = shared(here, there)
    return Divergence(turn, part, token, here[letters:], there[letters:])


def shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the number of items at the beginning that both sequences share."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def calls_parted(one: Trajectory, other: Trajectory) -> tuple[int, Divergence] | None:
    """Return the number (from 1) of the first tool call that differs, and the difference; None if all agree."""
    mine, yours = tool_calls(one), tool_calls(other)
    for number, (a, b) in enumerate(zip(mine, yours, strict=False), 1):
        for part, here, there in (
            ("tool", a.name, b.name),
            ("arguments", a.arguments, b.arguments),
            ("result", a.told, b.told),
        ):
            if here != there:
                shown = (here, there) if part == "result" else (str(a), str(b))
                return number, Divergence(a.turn, part, None, *shown)
    if len(mine) == len(yours):
        return None
    number = min(len(mine), len(yours))
    longer = (mine if len(mine) > number else yours)[number]
    here, there = (str(longer), "") if len(mine) > number else ("", str(longer))
    return number + 1, Divergence(longer.turn, "end", None, here, there)


def group(trajectories: Sequence[Trajectory]) -> list[tuple[Divergence | None, tuple[int, Divergence] | None]]:
    """Return for each trajectory after the first where the trajectory leaves the first: by tokens and by tool calls."""
    first = trajectories[0]
    return [(parted(first, other), calls_parted(first, other)) for other in trajectories[1:]]
