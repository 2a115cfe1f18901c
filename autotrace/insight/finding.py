"""Describe a finding, and read the text of its code from the code's page in ``docs/findings``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config.installation import carried

_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)


TRAJECTORIES, GROUPS = "trajectories", "groups"


@dataclass(frozen=True)
class Code:
    """Hold a kind of finding: its words and its threshold."""

    code: str
    """Name the code ``AT-...``, whose meaning never changes."""
    title: str
    """State the fault in a few words."""
    what: str
    """State the fault and its effect on the run in one sentence."""
    why: str
    """Describe the cause, with the key of the configuration or the line of the agent if known."""
    remedy: str
    """Describe remedies to try."""
    normal: str
    """Describe similar cases that are fine."""
    weight: float
    """Set the cost of a trajectory: 1 is the whole trajectory."""
    share: float = 0.0
    """Set the share of a step's trajectories from which the step has the finding ..."""
    count: int = 1
    """... and the number of trajectories."""
    unit: str = TRAJECTORIES
    """Name the counted unit: ``TRAJECTORIES`` or ``GROUPS``."""
    family: str = ""
    """Name the file of the family; empty: a code of another package."""
    needs: tuple[str, ...] = ()
    """Name the data that the check reads, as ``needs.NEEDS`` names the data, in lower case; empty: any trajectory."""

    @classmethod
    def each(cls, weights: Mapping[str, float], **given: Any) -> tuple[Code, ...]:
        """Create several of autotrace's codes with their weights; ``given`` goes to ``of`` for each code."""
        return tuple(cls.of(code, weight, **given) for code, weight in weights.items())

    @classmethod
    def of(cls, code: str, weight: float, *, share: float = 0.0, count: int = 1, unit: str = TRAJECTORIES) -> Code:
        """Create one of autotrace's codes with the words of the code's page."""
        head, *sections = _SECTION.split(_page(code))
        _, title, what = (part.strip() for part in head.strip().split("\n\n", 2))
        words = dict(zip(sections[::2], map(str.strip, sections[1::2]), strict=True))
        title = title.strip("*").removesuffix(".")
        title = title if title[1:2].isupper() else title[:1].lower() + title[1:]
        why, remedy, normal = (words[name] for name in ("Why", "What to try", "What looks similar but is fine"))
        needs = tuple(words.get("Data needed", "").lower().rstrip(".").split("; "))
        return cls(code, title, what, why, remedy, normal, weight, share, count, unit, needs=needs)


def _page(code: str) -> str:
    return Path(carried("docs", "docs"), "findings", f"{code}.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Location:
    """Name a place to open: ``autotrace show TRACE``."""

    trace_id: str
    step: int | None = None
    turn: int | None = None
    token: int | None = None
    note: str = ""


class Cause(msgspec.Struct):
    """Hold a trait in which two sets differ."""

    words: str
    position: str
    share: float
    """Store the share of the first set that has the trait."""
    share_before: float
    """Store the share of the other set."""
    mean_with: float | None = None
    """Store the mean reward of the rollouts with the trait, in both sets."""
    mean_without: float | None = None
    explains: float | None = None
    """Store the explained part of the difference of the mean rewards; None: the means do not differ."""
    chance: float = 1.0
    """Store the probability of the difference by chance, corrected for the number of candidates."""
    rollouts: int = 0
    """Count the rollouts of both sets that have the trait."""
    condition: str = ""
    """Store a condition for ``ls --where``; empty for a quantity."""
    also: list[str] = []
    """List other traits of the same rollouts."""
    follows: list[str] = []
    """List later traits of nearly the same rollouts."""
    with_it: list[str] = []
    """List trace ids of rollouts that have the trait ..."""
    without_it: list[str] = []
    """... and of rollouts that lack the trait."""
    since: int | None = None
    """Store the first step with the trait; None: the first step that is compared, or a trait that ceased."""


class Explanation(msgspec.Struct):
    """Describe how two sets of rollouts differ."""

    title: str
    other: str
    """Name the second set beside a share: ``before``, ``in other groups``."""
    causes: list[Cause]
    tested: int
    rollouts: int
    rollouts_before: int
    mean: float | None = None
    mean_before: float | None = None
    step: int | None = None
    """Store the first step of a change."""
    note: str = ""
    """Store a last line for people."""
    symptoms: list[Cause] = []
    """List differences that may be consequences, if no cause is found."""


@dataclass(frozen=True)
class Finding:
    """Hold a fault, its extent and its places, as plain data. ``--json`` prints ``as_dict``."""

    code: str
    title: str
    what: str
    trajectories: int
    """Count the trajectories with the finding; groups if ``unit`` names groups."""
    of: int
    """Count all trajectories (or groups) of the steps."""
    cost: float
    """Store the share of the run that the finding spoils, from 0 to 1. Findings are sorted by cost."""
    since_step: int | None
    steps: int
    """Count the steps with the finding."""
    why: str
    remedy: str
    places: Sequence[Location] = ()
    """List at most three places."""
    seconds: float | None = None
    """Store the lost seconds, for a finding about time."""
    notes: dict[str, int] = field(default_factory=dict)
    """Map cause or class -> count."""
    unit: str = TRAJECTORIES
    """Name the unit of ``trajectories`` and ``of``."""
    answer: Explanation | None = None
    """Store the likely causes: traits that tell the trajectories apart from others."""
    under: str = ""
    """Name the code of the finding from which this finding follows; empty: no such finding."""

    @property
    def share(self) -> float:
        """Return the share of the trajectories, or groups."""
        return self.trajectories / self.of if self.of else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Convert to a dict for ``--json``."""
        return {**msgspec.to_builtins(self), "share": round(self.share, 6), "cost": round(self.cost, 6)}
