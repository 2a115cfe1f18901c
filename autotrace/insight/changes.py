"""Find where the mean reward of a run changes for good: drops and jumps between stretches of steps.

The steps are split where the two sides differ most, and each side is split again, as long as the difference is beyond
chance. The error of a side's mean is the largest of three: rollouts that vary, prompts that vary, and steps that vary.
So few steps need many prompts, and a run that drifts from step to step needs a large change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import linear_regression
from typing import NamedTuple

import msgspec

from autotrace.insight.rollouts import Row
from autotrace.insight.step_records import grouped

CHANCE = 0.001
"""Limit the probability of a difference by chance, over all places where the steps may be split."""
LARGE = 0.4
"""Require a change of so many standard deviations of the reward."""
FEW = 4
"""Require so many groups on each side."""
ABRUPT, NEAR = 0.5, 8
"""Limit the error of two levels, as a share of the error of a line, over so many steps on each side: learning is slower
than a jump."""
WINDOWS = (8, 4)
"""Compare so many steps on each side of a place, and also all steps on each side."""
MANY = 4
"""Measure how much a run varies from step to step only with more than so many steps."""


class Change(msgspec.Struct):
    """Hold a stretch of steps whose mean reward differs from the mean of the stretch before."""

    step: int
    """Store the first step."""
    last: int
    since: int
    """Store the first step of the stretch before."""
    mean: float
    mean_before: float
    chance: float

    @property
    def is_drop(self) -> bool:
        """Return whether the reward fell."""
        return self.mean < self.mean_before

    def is_at(self, step: int | None) -> bool:
        """Return whether ``step`` is one of the changed steps."""
        return step is not None and self.step <= step <= self.last

    def is_beyond(self, reward: float | None) -> bool:
        """Return whether a reward is on the side to which the mean moved."""
        return reward is not None and (reward < self.mean_before) == self.is_drop and reward != self.mean_before


class _Sums(NamedTuple):
    """Hold count, sum and sum of squares."""

    size: int = 0
    sum: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> _Sums:
        return cls(len(values), math.fsum(values), math.fsum(value * value for value in values))

    def less(self, other: _Sums) -> _Sums:
        return _Sums(self.size - other.size, self.sum - other.sum, self.squares - other.squares)

    def more(self, other: _Sums) -> _Sums:
        return _Sums(self.size + other.size, self.sum + other.sum, self.squares + other.squares)

    @property
    def mean(self) -> float:
        return self.sum / self.size if self.size else 0.0

    @property
    def variance(self) -> float:
        spread = self.squares - self.sum * self.sum / self.size if self.size > 1 else 0.0
        return max(0.0, spread / (self.size - 1)) if spread > 1e-9 * self.squares else 0.0


class _Stretch(NamedTuple):
    """Hold consecutive steps: the sums of the rollouts, groups and steps."""

    rollouts: _Sums
    groups: _Sums
    steps: _Sums

    @property
    def error(self) -> tuple[float, int]:
        """Compute the squared standard error of the mean, and its degrees of freedom."""
        varying = [self.rollouts, self.groups] + ([self.steps] if self.steps.size > MANY else [])
        return max((sums.variance / sums.size, sums.size - 1) for sums in varying)


def _of_step(rows: Sequence[Row]) -> _Stretch:
    known = [(row.group, row.reward) for row in rows if row.reward is not None]
    rewards = [reward for _, reward in known]
    groups = [_Sums.of([reward for _, reward in own]) for own in grouped(known, lambda one: one[0]).values()]
    return _Stretch(
        _Sums.of(rewards), _Sums.of([own.mean for own in groups]),
        _Sums.of([sum(rewards) / len(rewards)]),
    )  # fmt: skip


class _Series:
    """Hold the rewards of all steps, so that any stretch costs the same."""

    def __init__(self, by_step: Mapping[int, Sequence[Row]]) -> None:
        self.numbers = sorted(number for number, rows in by_step.items() if any(row.reward is not None for row in rows))
        self._up_to = [_Stretch(_Sums(), _Sums(), _Sums())]
        for number in self.numbers:
            self._up_to.append(_Stretch(*map(_Sums.more, self._up_to[-1], _of_step(by_step[number]))))

    def between(self, begin: int, end: int) -> _Stretch:
        """Sum the steps from place ``begin`` up to, but without, ``end``."""
        return _Stretch(*map(_Sums.less, self._up_to[end], self._up_to[begin]))

    def mean(self, begin: int, end: int) -> float:
        """Return the mean reward of the rollouts."""
        return self.between(begin, end).rollouts.mean


def changes(by_step: Mapping[int, Sequence[Row]]) -> list[Change]:
    """Find the changes of a run's mean reward, in order."""
    series = _Series(by_step)
    numbers, count = series.numbers, len(series.numbers)
    large = LARGE * math.sqrt(series.between(0, count).rollouts.variance)
    splits = sorted(_splits(series, large, 0, count)) if large else []
    edges = [0, *(at for at, _ in splits), count]
    means = [series.mean(begin, end) for begin, end in pairwise(edges)]
    found: list[Change] = []
    for (at, chance), (before, after), first, end in zip(splits, pairwise(means), edges, edges[2:], strict=False):
        is_new = after > max(means[: edges.index(at)]) + large and _is_abrupt(series, at)
        if after < before or is_new:  # a reward that recovers is no news, and a slow rise is learning
            found.append(Change(numbers[at], numbers[end - 1], numbers[first], after, before, chance))
        elif found and abs(after - found[-1].mean) < abs(after - found[-1].mean_before):
            found[-1].last = numbers[end - 1]  # the reward did not recover
    return found


def _splits(series: _Series, large: float, begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Find places where the mean changes, and the probability of each by chance. All steps on both sides are compared,
    and a few steps on each side: a drop that ends would be a part of its own side."""
    windows = [end - begin, *(width for width in WINDOWS if width < end - begin)]
    best, chance, place = 0.0, 1.0, 0
    tests = (end - begin - 1) * len(windows)
    for at in range(begin + 1, end):
        for width in windows:
            sides = series.between(max(begin, at - width), at), series.between(at, min(end, at + width))
            gap = abs(sides[1].rollouts.mean - sides[0].rollouts.mean)
            if min(side.groups.size for side in sides) < FEW or gap < large:
                continue
            both = _Stretch(*map(_Sums.more, *sides)).rollouts.variance / 2  # few rewards may be equal by chance
            errors = [max(side.error, (both / side.rollouts.size, side.rollouts.size - 1)) for side in sides]
            error = sum(one for one, _ in errors)
            freedom = error**2 / sum(one**2 / of for one, of in errors) if error else 1.0  # Welch and Satterthwaite
            own = tests * (two_sided(gap / math.sqrt(error), int(freedom)) if error else 0.0)
            # the most likely place has the largest sum of squares between its sides
            sizes = [side.rollouts.size for side in sides]
            between = gap * gap * sizes[0] * sizes[1] / sum(sizes)
            if own < CHANCE and between > best:
                best, chance, place = between, own, at
    if not best:
        return
    yield place, chance
    yield from _splits(series, large, begin, place)
    yield from _splits(series, large, place, end)


def _is_abrupt(series: _Series, at: int) -> bool:
    """Return whether two levels describe the steps around a change far better than a line does."""
    first, last = max(0, at - NEAR), min(len(series.numbers), at + NEAR)
    means = [series.mean(place, place + 1) for place in range(first, last)]
    levels = _spread(means[: at - first]) + _spread(means[at - first :])
    slope, _ = linear_regression(range(len(means)), means)
    return levels < ABRUPT * _spread([value - slope * place for place, value in enumerate(means)])


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def two_sided(size: float, freedom: int) -> float:
    """Compute the probability of a Student's t as large as ``size``, for whole degrees of freedom (Abramowitz and
    Stegun 26.7.3 and 26.7.4)."""
    if math.isinf(size):
        return 0.0
    if freedom > 200:
        return math.erfc(size / math.sqrt(2))
    angle = math.atan(size / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 if odd else 1, freedom - 1, 2):
        term *= cosine**2 * step / (step + 1)
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total * (freedom > 1)) if odd else math.sin(angle) * total
    return max(0.0, 1 - inside)
