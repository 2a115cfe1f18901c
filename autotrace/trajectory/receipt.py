"""Map parts of the agent's response to LLM calls, and compute the receipt of training: the trainer's row with the
tokens of each chain, and the tokens that no row has.

A trainer reports on each row of a trajectory (``advantage``, ``advantage.1``, ...). Before the report, the rows count
that a call of the trajectory returned (``chains`` of a spec). A row is a chain if the number of trained tokens equals
the number of tokens that the chain's turns generated; among several chains, the first that ended after the chain of the
previous row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotrace.trajectory.chains import Chain, path, tree_of
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Span, Trajectory


class Piece(NamedTuple):
    """Mark a range of tokens of the agent's response."""

    start: int
    length: int


def pieces(turns: Sequence[Span], whole: Span | None) -> dict[str, Piece] | None:
    """Return span id of each of ``turns`` -> its part of ``whole``'s response; None if the turns are not pieces of a
    single response (the agent began anew, or left out a turn), or if tokens are missing."""
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
    """Return whether ``span`` is a row that a call returned (``chains`` of a spec)."""
    return span.role == "agent" and type(span.attributes.get("row")) is int


def whole_response(spans: Sequence[Span]) -> Span | None:
    """Return the call that has the whole conversation: the agent's, or the last of the returned rows."""
    having = (span for span in spans if span.role not in ("llm", "engine"))
    answers = (span for span in having if span.response_mask or span.response_ids or span.response_text)
    first = next(answers, None)
    return [first, *answers][-1] if first is not None and is_row(first) else first


def answered_path(trajectory: Trajectory, whole: Span | None) -> list[int]:
    """Return the turns, from 1, of the chain that is the response of ``whole``; if no chain fits, or without a
    response, the turns of the chain that ended last."""
    paths = tree_of(trajectory).paths()
    if len(paths) < 2:
        return paths[0] if paths else []
    return next((path for path in paths if _whole_of(trajectory, path, whole)), paths[0])


def own_pieces(trajectory: Trajectory, whole: Span | None) -> dict[str, Piece] | None:
    """Return ``pieces`` of the turns of ``answered_path``; None if the trajectory branches and the response is not a
    single chain."""
    path = answered_path(trajectory, whole)
    if len(tree_of(trajectory).chains) > 1:
        return _whole_of(trajectory, path, whole)
    return pieces([trajectory.llm_spans[turn - 1] for turn in path], whole)


def _whole_of(trajectory: Trajectory, path: Sequence[int], whole: Span | None) -> dict[str, Piece] | None:
    """Return the pieces of a path, if the pieces reach to the end of the response."""
    places = pieces([trajectory.llm_spans[turn - 1] for turn in path], whole)
    if not places or whole is None:
        return None
    last = places[trajectory.llm_spans[path[-1] - 1].span_id]
    return places if last.start + last.length == len(whole.response_ids or ()) else None


_REPORTED = re.compile(r"(?:advantage|token_facts)(?:\.(\d{1,6}))?")
_RETURNED = re.compile(r"row_tokens(?:\.(\d{1,6}))?")


@dataclass
class Receipt:
    """Describe what training did with the tokens that the turns of a trajectory generated."""

    rows: list[int]
    """Numbers of the rows that the trainer reported on, or that a call returned."""
    total: int
    """Number of rows in all."""
    row: dict[int, int]
    """Chain -> its row."""
    generated: list[int]
    """Tokens that each turn generated."""
    times: list[int]
    """Number of rows that contain each turn."""

    @property
    def is_whole(self) -> bool:
        """Return whether each row is known to be some chain: other tokens are in no row."""
        return len(self.row) == self.total > 0

    def inside(self, chain: Chain) -> int:
        """Return how many of the tokens that a chain's own turns generated are in a row."""
        return sum(self.generated[turn - 1] for turn in chain.turns if self.times[turn - 1])

    def left(self, chains: Sequence[Chain]) -> Iterator[tuple[str, int, int]]:
        """Yield for each chain with tokens in no row: the reason, the number of tokens, and the first turn in no
        row."""
        for chain in chains:
            turns = [turn for turn in chain.turns if not self.times[turn - 1]]
            if count := sum(self.generated[turn - 1] for turn in turns):
                yield why_left(chains, chain), count, turns[0]


def of_row(facts: Mapping[str, Any], name: str, row: int) -> Any:
    """Return a fact about a row."""
    return facts.get(f"{name}.{row}" if row else name)


def receipt(chains: Sequence[Chain], generated: Sequence[int | None], facts: Mapping[str, Any]) -> Receipt | None:
    """Compute the receipt. ``generated``: tokens of each turn; None for an answer without tokens. Returns None if no
    row is known, or no turn's number."""
    by_trainer = any(name.startswith("token_facts") for name in facts) or not _rows(facts, _RETURNED)
    rows = _rows(facts, _REPORTED if by_trainer else _RETURNED)
    total = None if by_trainer else integer(facts.get("returned_rows"))
    if total is not None:  # rows of an earlier call are out of date
        rows = [row for row in rows if row < total]
    if not rows or not chains or {*generated} == {None}:
        return None
    counts = [count or 0 for count in generated]
    found = Receipt(rows, rows[-1] + 1 if total is None else total, {}, counts, [0] * len(counts))
    fitting: dict[int | None, list[tuple[Chain, list[int]]]] = {}
    for chain in sorted(chains, key=lambda chain: chain.ended):
        for turns in (path(chains, chain), chain.turns):
            fitting.setdefault(sum(counts[turn - 1] for turn in turns), []).append((chain, turns))
    last = -1
    for row in rows:
        told = of_row(facts, "token_facts" if by_trainer else "row_tokens", row)
        trained = integer(told.get("tokens") if isinstance(told, dict) else None if by_trainer else told)
        free = [one for one in fitting.get(trained, ()) if one[0].number not in found.row]
        if not free and by_trainer and len(chains) == 1 and rows == [0]:
            free = [(chains[0], chains[0].turns)]  # the trainer may have cut the chain
        if free:
            chain, turns = next((one for one in free if one[0].ended > last), free[0])
            fitting[trained] = free
            found.row[chain.number], last = row, chain.ended
            for turn in turns:
                found.times[turn - 1] += 1
    return found


def _rows(facts: Mapping[str, Any], names: re.Pattern[str]) -> list[int]:
    return sorted({int(match[1] or 0) for name in facts if (match := names.fullmatch(name))})


def receipt_of(trajectory: Trajectory) -> Receipt | None:
    """Compute the receipt of a trajectory."""
    generated = [span.response_tokens for span in trajectory.llm_spans]
    return receipt(tree_of(trajectory).chains, generated, trajectory.facts)


def why_left(chains: Sequence[Chain], chain: Chain) -> str:
    """Return why a chain is in no row: the kind of the chain that leaves it, else its own kind."""
    leaving = (other.kind for other in chains if other.parent == chain.number and other.kind not in (None, "sub-agent"))
    return next(leaving, None) or chain.kind or "chain"


def words(trajectory: Trajectory) -> str:
    """Return ``199 generated, 105 in 1 row, 94 in none (94 rewrite)``; empty if nothing is known."""
    told, chains = receipt_of(trajectory), tree_of(trajectory).chains
    if told is None or not told.row:
        return ""
    total, inside = sum(told.generated), sum(map(told.inside, chains))
    rows = f"{len(told.row)} row{'s' if len(told.row) > 1 else ''}"
    lost = Counter[str]()
    for kind, count, _ in told.left(chains):
        lost[kind] += count
    none = ", ".join(f"{count:,} {kind}" for kind, count in lost.items())
    known = "in none" if told.is_whole else "in rows that are not known"
    numbers = [of_row(trajectory.facts, "token_facts", row) for row in told.row.values()]
    clipped = sum(max(0, integer(one.get("clipped")) or 0) for one in numbers if isinstance(one, dict))
    return (
        f"{total:,} generated, {inside:,} in {rows}"
        + (f", {total - inside:,} {known} ({none})" if none else "")
        + (f", {clipped:,} of the rows' with a clipped weight" if clipped else "")
    )
