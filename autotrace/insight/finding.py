"""What a finding is, and the text that stands behind its code: that of its page in ``docs/findings``."""

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
    """A kind of finding: its words and its threshold."""

    code: str
    """``AT-...``; never changes its meaning."""
    title: str
    """What is wrong, in a few words."""
    what: str
    """One sentence: what happens, and what it does to the run."""
    why: str
    """How it comes about, with the key of the configuration or the line of the agent where there is one."""
    remedy: str
    """What to try."""
    normal: str
    """What looks similar but is fine."""
    weight: float
    """What one trajectory of it costs: 1 is the whole trajectory."""
    share: float = 0.0
    """A step has the finding if at least this share of its trajectories does ..."""
    count: int = 1
    """... and at least so many."""
    unit: str = TRAJECTORIES
    """What is counted: ``TRAJECTORIES`` or ``GROUPS``."""
    family: str = ""
    """Name of its family's file; empty: it is another package's."""

    @classmethod
    def each(cls, weights: Mapping[str, float], **given: Any) -> tuple[Code, ...]:
        """Some of ours, with their weights, and with what ``of`` is given for all of them."""
        return tuple(cls.of(code, weight, **given) for code, weight in weights.items())

    @classmethod
    def of(cls, code: str, weight: float, *, share: float = 0.0, count: int = 1, unit: str = TRAJECTORIES) -> Code:
        """One of ours: its words are those of its page."""
        head, *sections = _SECTION.split(_page(code))
        _, title, what = (part.strip() for part in head.strip().split("\n\n", 2))
        words = dict(zip(sections[::2], map(str.strip, sections[1::2]), strict=True))
        title = title.strip("*").removesuffix(".")
        title = title if title[1:2].isupper() else title[:1].lower() + title[1:]
        why, remedy, normal = (words[name] for name in ("Why", "What to try", "What looks similar but is fine"))
        return cls(code, title, what, why, remedy, normal, weight, share, count, unit)


def _page(code: str) -> str:
    return Path(carried("docs", "docs"), "findings", f"{code}.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Location:
    """Where to look: ``autotrace show TRACE``."""

    trace_id: str
    step: int | None = None
    turn: int | None = None
    token: int | None = None
    note: str = ""


class Cause(msgspec.Struct):
    """A trait that two sets differ in."""

    words: str
    position: str
    share: float
    """Share of the first set that has the trait."""
    share_before: float
    """Share of the other set."""
    mean_with: float | None = None
    """Reward of the rollouts with the trait, in both sets."""
    mean_without: float | None = None
    explains: float | None = None
    """Part of the difference of the mean rewards; None: these do not differ."""
    chance: float = 1.0
    """Probability of such a difference by chance, corrected for the number of candidates."""
    rollouts: int = 0
    """Rollouts of both sets that have it."""
    condition: str = ""
    """For ``ls --where``; empty for a quantity."""
    also: list[str] = []
    """Other traits of the same rollouts."""
    follows: list[str] = []
    """Traits that hold for nearly the same rollouts, and come later."""
    with_it: list[str] = []
    """Trace ids of rollouts that have it ..."""
    without_it: list[str] = []
    """... and of rollouts that lack it."""


class Explanation(msgspec.Struct):
    """What tells two sets of rollouts apart."""

    title: str
    other: str
    """What the second set is called beside a share: ``before``, ``in other groups``."""
    causes: list[Cause]
    tested: int
    rollouts: int
    rollouts_before: int
    mean: float | None = None
    mean_before: float | None = None
    step: int | None = None
    """The first step of a change."""
    note: str = ""
    """A last line for people."""


@dataclass(frozen=True)
class Finding:
    """What is wrong, how much of it there is, and where. Plain data; ``as_dict`` is what ``--json`` prints."""

    code: str
    title: str
    what: str
    trajectories: int
    """How many have it; groups if ``unit`` says so."""
    of: int
    """How many the steps have."""
    cost: float
    """By which findings are sorted: the part of the run that it spoils, from 0 to 1."""
    since_step: int | None
    steps: int
    """How many steps have it."""
    why: str
    remedy: str
    places: Sequence[Location] = ()
    """At most three."""
    seconds: float | None = None
    """Lost by it, where it is about time."""
    notes: dict[str, int] = field(default_factory=dict)
    """Cause or class -> how many."""
    unit: str = TRAJECTORIES
    """What ``trajectories`` and ``of`` count."""
    answer: Explanation | None = None
    """What tells its trajectories apart from others: the likely causes."""
    under: str = ""
    """The code of the finding from which it follows; empty: of none."""

    @property
    def share(self) -> float:
        """Of the trajectories, or groups."""
        return self.trajectories / self.of if self.of else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**msgspec.to_builtins(self), "share": round(self.share, 6), "cost": round(self.cost, 6)}
