"""Tail sampling by keep-rules: which groups of trajectories are delivered, decided for a whole group once it has ended.

A GRPO group (the rollouts of one prompt in one step) is never half kept: what is interesting about one of its rollouts
is interesting beside the others. What is not kept stays in the local spool; ``autotrace ship --all`` delivers it still.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from autotrace.config.keep_rules import KeepRules
from autotrace.config.scalars import fraction
from autotrace.trajectory.model import OK

WINDOW = 1000
"""Latest groups (durations) and trajectories (rewards) that quantiles are taken over."""


@dataclass(frozen=True)
class Member:
    """What a decision looks at, of one trajectory."""

    status: str
    duration_ns: int
    reward: float | None


class TailSampler:
    """Decides group after group; remembers the window that quantiles need. ``decide`` is repeatable for the random
    share."""

    def __init__(self, rules: KeepRules, seed: str = "") -> None:
        self.rules = rules
        self._seed = seed
        self._durations = _Window(WINDOW)
        self._rewards = _Window(WINDOW)

    def decide(self, group: str, members: Sequence[Member]) -> str | None:
        """Why the group is kept, None when it stays local."""
        rules = self.rules
        rewards = [member.reward for member in members if member.reward is not None]
        longest = max((member.duration_ns for member in members), default=0)
        slow = rules.slowest is not None and self._durations.share_above(longest) * 100 < rules.slowest
        extreme = rules.extremes is not None and any(
            min(self._rewards.share_above(reward), self._rewards.share_below(reward)) * 100 < rules.extremes
            for reward in rewards
        )
        self._durations.add(longest)
        for reward in rewards:
            self._rewards.add(reward)
        if rules.errors and any(member.status != OK for member in members):
            return "errors"
        if rules.spread and len(set(rewards)) > 1:
            return "spread"
        if slow:
            return "slowest"
        if extreme:
            return "extremes"
        return "random" if fraction(self._seed, group) < rules.random else None


class _Window:
    """The latest values, sorted."""

    def __init__(self, size: int) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        self._size = size

    def add(self, value: float) -> None:
        self._latest.append(value)
        bisect.insort(self._sorted, value)
        if len(self._latest) > self._size:
            del self._sorted[bisect.bisect_left(self._sorted, self._latest.popleft())]

    def share_above(self, value: float) -> float:
        """Share of the window that is greater than ``value``; 0 for an empty window."""
        count = len(self._sorted)
        return (count - bisect.bisect_right(self._sorted, value)) / count if count else 0.0

    def share_below(self, value: float) -> float:
        """Share of the window that is less than ``value``."""
        return bisect.bisect_left(self._sorted, value) / len(self._sorted) if self._sorted else 0.0
