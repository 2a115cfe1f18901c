"""Keep-rules as a person writes them (``--keep errors,slowest=5``): which groups of trajectories are delivered.

What they decide, group by group: ``ship.delivery.tail_sampling``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
                raise ValueError(f"there is no keep-rule {word.strip()!r}; write one of {WORDS}")
        return cls(**given) if given else None


def _number(name: str, text: str) -> float:
    top = 1.0 if name == "random" else 100.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= top:
        raise ValueError(f"the keep-rule {name} has no value {text!r}; write a number between 0 and {top:g}")
    return number
