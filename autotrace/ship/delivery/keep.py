"""Keep-rules: which groups of trajectories are delivered, decided when a group has ended, for the whole group.

A GRPO group (the rollouts of one prompt in one step) is never half kept: what is interesting about one of its rollouts
is interesting beside the others. What is not kept stays in the local spool; ``autotrace ship --all`` delivers it still.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.record.sampling import fraction
from autotrace.trajectory.model import OK

WINDOW = 1000
"""Latest groups (durations) and trajectories (rewards) that quantiles are taken over."""
WORDS = "errors, spread, slowest=PERCENT, extremes=PERCENT, random=SHARE"


@dataclass(frozen=True)
class KeepRules:
    """What is always kept, and the share of the rest. ``None``: the rule is off."""

    errors: bool = False
    """Groups with a trajectory that did not end OK."""
    spread: bool = False
    """Groups whose rewards differ (the others teach GRPO nothing)."""
    slowest: float | None = None
    """Groups whose longest trajectory is among the slowest so many percent."""
    extremes: float | None = None
    """Groups with a reward among the lowest or highest so many percent."""
    random: float = 0.0
    """Share of all other groups, between 0 and 1."""

    @classmethod
    def parse(cls, words: Iterable[str]) -> KeepRules | None:
        """From what stands after ``--keep``; None when nothing does. Raises ``ValueError`` with one sentence."""
        given: dict[str, Any] = {}
        for word in words:
            name, equals, text = word.strip().partition("=")
            if name in ("errors", "spread") and not equals:
                given[name] = True
            elif name in ("slowest", "extremes", "random") and equals:
                given[name] = _number(name, text)
            else:
                raise ValueError(f"--keep {word}: write one of {WORDS}")
        return cls(**given) if given else None


def _number(name: str, text: str) -> float:
    top = 1.0 if name == "random" else 100.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= top:
        raise ValueError(f"--keep {name}={text}: write a number between 0 and {top:g}")
    return number


@dataclass(frozen=True)
class Member:
    """What a decision looks at, of one trajectory."""

    status: str
    duration_ns: int
    reward: float | None


class Keeper:
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


UNITS: Mapping[str, int] = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(option: str, text: str) -> int:
    """``500MB`` as a number of bytes. Raises ``ValueError`` with one sentence."""
    digits = text.strip().rstrip("BKMGTbkmgt ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        return int(float(digits) * UNITS[unit])
    except (ValueError, KeyError):
        raise ValueError(f"{option} {text}: write a size such as 500MB or 1GB") from None
