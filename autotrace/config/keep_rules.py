"""Keep-rules as a person writes them (``--keep errors,random=0.1``): which groups of trajectories are delivered.

What they decide, group by group: ``ship.delivery.tail_sampling``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WORDS = "errors, spread, random=SHARE"


@dataclass(frozen=True)
class KeepRules:
    """What is always kept, and the share of the rest. ``None``: the rule is off."""

    errors: bool = False
    """Groups with a trajectory that did not end OK."""
    spread: bool = False
    """Groups whose rewards differ (the others teach GRPO nothing)."""
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
            elif name == "random" and equals:
                given[name] = _share(text)
            else:
                raise ValueError(f"there is no keep-rule {word.strip()!r}; write one of {WORDS}")
        return cls(**given) if given else None


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"the keep-rule random has no value {text!r}; write a number between 0 and 1")
    return share
