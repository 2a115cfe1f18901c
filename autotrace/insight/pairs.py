"""Pair the rollouts of two runs by prompt, and count the prompts on which the other run does better.

    paired = pair(rollouts, others)
    for tally in paired.tallies():
        print(tally.source, tally.wins, tally.losses, tally.ties)

Prompts pair by uid, by the index in the data set, or by the question: by the first name that most prompts share, within
a step if possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec

from autotrace.insight.changes import two_sided

NAMES = ("uid", "index", "question")
"""List the names by which prompts pair, in the order of preference."""
FEW = 20
"""Call fewer prompts few."""


class Kept(NamedTuple):
    """Hold the part of a rollout by which rollouts pair."""

    trace_id: str
    step: int | None
    source: str
    prompts: Sequence[str | None]
    """List the prompt under each of ``NAMES``; None: not known."""
    reward: float | None
    mark: int
    """Store a digest of tokens, texts, weights, end, reward, advantage and training."""


class PairChange(msgspec.Struct):
    """Hold a prompt with rewards on both sides."""

    change: float
    """Store the change of the mean reward."""
    prompt: str
    source: str
    rewards: list[list[float]]
    traces: list[list[str]]


class PairCounts(msgspec.Struct):
    """Count prompts whose mean reward is higher, lower and equal on the second side."""

    source: str
    wins: int
    losses: int
    ties: int
    change: float
    """Store the mean change."""
    low: float | None = None
    """Store the 95% interval of ``change`` (Student's t over prompts); None: a single prompt."""
    high: float | None = None

    @classmethod
    def of(cls, changes: Sequence[float], source: str = "") -> PairCounts:
        """Count the changes of prompts."""
        count, mean = len(changes), fmean(changes)
        wins, losses = sum(one > 1e-9 for one in changes), sum(one < -1e-9 for one in changes)
        made = cls(source, wins, losses, count - wins - losses, mean)
        if count > 1:
            size = next(size for size in range(196, 1272) if two_sided(size / 100, count - 1) <= 0.0501) / 100
            error = stdev(changes) / math.sqrt(count)
            made.low, made.high = mean - size * error, mean + size * error
        return made


Group = tuple[list[Kept], list[Kept]]
"""Hold the rollouts of a prompt on both sides."""


@dataclass
class Pairs:
    """Hold the rollouts of both sides by prompt."""

    by: str = ""
    in_step: bool = False
    share: float = 0.0
    """Store the paired share of the prompts, of the side with fewer prompts."""
    sides: Sequence[dict[tuple[object, ...], list[Kept]]] = ({}, {})

    @property
    def groups(self) -> list[Group]:
        """Return the rollouts of each prompt that both sides have."""
        return [(rollouts, self.sides[1][key]) for key, rollouts in self.sides[0].items() if key in self.sides[1]]

    def changes(self) -> list[PairChange]:
        """Return the prompts with rewards on both sides, the largest change first."""
        found = []
        for group in self.groups:
            rewards = [[one.reward for one in side if one.reward is not None] for side in group]
            if all(rewards):
                first, traces = group[0][0], [[one.trace_id for one in side] for side in group]
                prompt = next(filter(None, reversed(first.prompts)), "")
                found.append(PairChange(fmean(rewards[1]) - fmean(rewards[0]), prompt, first.source, rewards, traces))
        return sorted(found, key=lambda each: -abs(each.change))

    def tallies(self) -> list[PairCounts]:
        """Count all prompts, then the prompts of each data source if there are several."""
        changes = self.changes()
        sources = sorted({each.source for each in changes})
        parts = [PairCounts.of([one.change for one in changes if one.source == source], source) for source in sources]
        return [PairCounts.of([one.change for one in changes]), *(parts if len(parts) > 1 else ())] if changes else []


def pair(one: Sequence[Kept], other: Sequence[Kept]) -> Pairs:
    """Pair the prompts of two sides."""
    best = Pairs()
    for in_step, (number, name) in ((in_step, each) for in_step in (True, False) for each in enumerate(NAMES)):
        sides = [_by_prompt(rollouts, number, in_step) for rollouts in (one, other)]
        share = len(sides[0].keys() & sides[1].keys()) / max(1, min(map(len, sides)))
        if share > best.share or (not best.by and all(sides)):
            best = Pairs(name, in_step, share, sides)
        if share >= 0.5:
            break
    return best


def _by_prompt(rollouts: Sequence[Kept], name: int, in_step: bool) -> dict[tuple[object, ...], list[Kept]]:
    """Map prompt -> rollouts; empty if the name does not tell questions apart."""
    found: dict[tuple[object, ...], list[Kept]] = {}
    for one in rollouts:
        if (prompt := one.prompts[name]) is not None:
            found.setdefault((one.source, prompt, one.step if in_step else None), []).append(one)
    return found if 2 * len({key[1] for key in found}) >= len({one.prompts[-1] for one in rollouts}) else {}
