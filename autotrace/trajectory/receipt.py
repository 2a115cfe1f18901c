"""The receipt of training: the row of the trainer that has the tokens of each chain, and tokens that no row has.

A trainer reports on each row of a trajectory (``advantage``, ``advantage.1``, ...). A row is a chain if as many of its
tokens are trained on as the chain's turns generated; of several, the one that ended first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.trajectory.chains import Chain, path, tree_of
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.numbers import integer

_OF_ROW = re.compile(r"(?:advantage|token_facts)(?:\.(\d{1,6}))?")


@dataclass
class Receipt:
    """What became of the tokens that the turns of one trajectory generated."""

    rows: int
    """How many the trainer reported on."""
    row: dict[int, int]
    """Chain -> its row."""
    generated: list[int]
    """How many each turn generated."""
    times: list[int]
    """In how many rows each turn is."""

    @property
    def is_whole(self) -> bool:
        """Each row is known to be some chain: other tokens are in no row."""
        return len(self.row) == self.rows > 0

    def own(self, chain: Chain) -> int:
        """Tokens that a chain's own turns generated."""
        return sum(self.generated[turn - 1] for turn in chain.turns)

    def inside(self, chain: Chain) -> int:
        """How many of these are in a row."""
        return sum(self.generated[turn - 1] for turn in chain.turns if self.times[turn - 1])


def of_row(facts: Mapping[str, Any], name: str, row: int) -> Any:
    """A fact about one row."""
    return facts.get(f"{name}.{row}" if row else name)


def receipt(chains: Sequence[Chain], generated: Sequence[int | None], facts: Mapping[str, Any]) -> Receipt | None:
    """``generated``: tokens of each turn. None where the trainer reported on no row, or numbers are missing."""
    reported = [int(match[1] or 0) for name in facts if (match := _OF_ROW.fullmatch(name))]
    if not reported or not chains or None in generated:
        return None
    counts = [count or 0 for count in generated]
    times = [0] * len(counts)
    found: dict[int, int] = {}
    waiting = sorted(chains, key=lambda chain: chain.ended)
    sums = {
        chain.number: [(sum(counts[turn - 1] for turn in turns), turns) for turns in (path(chains, chain), chain.turns)]
        for chain in chains
    }
    for row in sorted(set(reported)):
        told = of_row(facts, "token_facts", row)
        trained = integer(told.get("tokens")) if isinstance(told, dict) else None
        for chain in waiting:
            turns = next((turns for count, turns in sums[chain.number] if count == trained), None)
            if turns is None and len(chains) == 1 and max(reported) == 0:
                turns = chain.turns  # the trainer may have cut it
            if turns is not None:
                found[chain.number] = row
                waiting = [one for one in waiting if one.ended > chain.ended]
                for turn in turns:
                    times[turn - 1] += 1
                break
    return Receipt(max(reported) + 1, found, counts, times)


def receipt_of(trajectory: Trajectory) -> Receipt | None:
    """The same for a trajectory."""
    generated = [span.response_tokens for span in trajectory.llm_spans]
    return receipt(tree_of(trajectory).chains, generated, trajectory.facts)


def why_left(chains: Sequence[Chain], chain: Chain) -> str:
    """Why a chain is in no row: the kind of the one that leaves it, else its own."""
    leaving = (other.kind for other in chains if other.parent == chain.number and other.kind not in (None, "sub-agent"))
    return next(leaving, None) or chain.kind or "chain"


def words(trajectory: Trajectory) -> str:
    """``199 generated, 105 in 1 row, 94 in none (94 rewrite)``; empty where nothing is known about that."""
    told, chains = receipt_of(trajectory), tree_of(trajectory).chains
    if told is None or not told.row:
        return ""
    total, inside = sum(told.generated), sum(map(told.inside, chains))
    rows = f"{len(told.row)} row{'s' if len(told.row) > 1 else ''}"
    lost = dict[str, int]()
    for chain in chains:
        if count := told.own(chain) - told.inside(chain):
            lost[why_left(chains, chain)] = lost.get(why_left(chains, chain), 0) + count
    none = ", ".join(f"{count:,} {kind}" for kind, count in lost.items())
    known = "in none" if told.is_whole else "in rows that are not known"
    return f"{total:,} generated, {inside:,} in {rows}" + (f", {total - inside:,} {known} ({none})" if none else "")
