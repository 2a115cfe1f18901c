"""What group, step and run detectors read: trajectories as lines with their profiles."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from autotrace.insight.profile import Profile, has_tool_error, is_truncated
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.deferred import cached
from autotrace.trajectory.jsonable import finite, integer, number


@dataclass
class Record:
    """One trajectory. None: not known."""

    trace_id: str
    group: str
    step: int | None
    status: str
    profile: Profile
    validate: bool = False
    uid: str | None = None
    data_source: str | None = None
    reward: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    attempt: int = 1
    rollout_n: int | None = None
    error: str | None = None
    run_id: str = ""

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return None if self.end_ns is None or self.start_ns is None else (self.end_ns - self.start_ns) / 1e9

    @cached
    def advantage(self) -> float | None:
        """As the trainer computed it; NaN where it is no number."""
        return measured(self.facts.get("advantage"))

    @cached
    def score(self) -> float | None:
        """The reward; NaN where it is no finite number."""
        return self.reward if self.reward is not None else measured(self.facts.get("reward"))

    @cached
    def trained_in_step(self) -> int | None:
        """The step whose update used it."""
        return integer(self.facts.get("trained_in_step"))

    @cached
    def versions(self) -> list[int]:
        """Of the weights that answered, ascending."""
        told = {turn.weights for turn in self.profile.turns}
        told |= {integer(self.facts.get(name)) for name in ("min_global_steps", "max_global_steps")}
        return sorted(version for version in told if version is not None)

    def members(self, fact: str) -> Mapping[Any, Any]:
        """Those of a fact that has some; empty for any other."""
        value = self.facts.get(fact)
        return value if isinstance(value, dict) else {}

    def has(self, *codes: str) -> bool:
        """It has a mark with one of ``codes``."""
        return any(mark.code in codes for mark in self.profile.marks)

    @property
    def truncated(self) -> bool:
        """Its answer was cut at a limit."""
        return bool(is_truncated(self.profile))

    @property
    def tools_failed(self) -> bool:
        """A tool of it failed."""
        return bool(has_tool_error(self.profile))

    @property
    def failed(self) -> bool:
        """It ended, and not well; one that was cancelled was not wanted."""
        return self.status not in ("OK", "OPEN", "CANCELLED")


def measured(value: Any) -> float | None:
    """``value`` as a float, if it is a number; NaN for a text that says it is none."""
    if isinstance(value, str):  # how a value that JSON has no number for was stored
        return math.nan if value.lower().lstrip("+-") in ("nan", "inf", "infinity") else None
    return number(value)


@dataclass
class Group:
    """The rollouts of one prompt in one step."""

    key: str
    records: list[Record]
    settings: TrainerSettings

    @cached_property
    def rewards(self) -> list[float]:
        """Those that are known and finite."""
        return [score for record in self.records if (score := finite(record.score)) is not None]

    @cached_property
    def finished(self) -> list[Record]:
        """All but those that failed."""
        return [record for record in self.records if not record.failed]

    @cached_property
    def is_flat(self) -> bool:
        """It has several rewards and they are equal: nothing to learn from."""
        return len(self.rewards) > 1 and max(self.rewards) - min(self.rewards) <= 1e-6


@dataclass
class Step:
    """The trajectories of one step, training and validation apart in ``training`` and ``validation``."""

    number: int | None
    records: list[Record]
    settings: TrainerSettings
    live: bool = False
    """The run goes on."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """As the trainer logged them."""
    computed: Mapping[str, float] = field(default_factory=dict)
    """The same names, as they follow from the log-probabilities of its trajectories; ``left``: of how many they were
    not looked at."""

    @cached_property
    def training(self) -> list[Record]:
        return [record for record in self.records if not record.validate]

    @cached_property
    def validation(self) -> list[Record]:
        return [record for record in self.records if record.validate]

    @cached_property
    def groups(self) -> list[Group]:
        """Of training, in the order of their first trajectory. Of a rollout that was made again, the last one."""
        last: dict[tuple[str, int], int] = {}
        for record in self.training:
            if record.rollout_n is not None:
                key = (record.group, record.rollout_n)
                last[key] = max(last.get(key, 1), record.attempt)
        by_key: dict[str, list[Record]] = {}
        for record in self.training:
            if record.rollout_n is None or record.attempt == last[record.group, record.rollout_n]:
                by_key.setdefault(record.group, []).append(record)
        return [Group(key, records, self.settings) for key, records in by_key.items()]

    @cached_property
    def rollouts(self) -> int:
        """Of a group, as configured or as the largest has."""
        return self.settings.rollout_n or max((len(group.records) for group in self.groups), default=0)

    @cached_property
    def has_whole_groups(self) -> bool:
        """Most of its groups have all their rollouts; else not all were recorded."""
        return sum(len(group.records) >= self.rollouts for group in self.groups) * 2 > len(self.groups)

    @cached_property
    def trains(self) -> bool:
        """A trainer is known to learn from what is rolled out."""
        return self.settings.trains or any(
            record.advantage is not None or record.trained_in_step is not None for record in self.training
        )

    @property
    def is_sync(self) -> bool:
        """The trainer is known to wait for this step's rollouts; one that does not counts no steps."""
        return self.settings.is_sync and self.number is not None and self.number >= 0

    @cached_property
    def wall_s(self) -> float:
        """Seconds from the first start to the last end of its training rollouts."""
        starts = [record.start_ns for record in self.training if record.start_ns is not None]
        ends = [record.end_ns for record in self.training if record.end_ns is not None]
        return (max(ends) - min(starts)) / 1e9 if starts and ends else 0.0


@dataclass(frozen=True)
class Hit:
    """A trajectory that has a finding."""

    code: str
    record: Record
    turn: int | None = None
    token: int | None = None
    note: str = ""
    kind: str = ""
    seconds: float | None = None


KEPT_STEPS = 64
"""Of which ``History`` knows something."""
Kept = TypeVar("Kept")


class History:
    """What detectors that compare steps need of the steps before, a few values each; kept by ``diagnose``."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[Hashable, Any]] = {}
        self.curves: dict[str, dict[int, float]] = {}
        """Metric -> step -> value, of all steps."""

    def up_to(self, step: int, what: Hashable, value: Kept) -> list[tuple[int, Kept]]:
        """Keep the ``value`` that ``what`` had in ``step``. Returns the steps up to this one, which comes last, with
        what it had in them."""
        self.steps.setdefault(step, {})[what] = value
        while len(self.steps) > KEPT_STEPS:
            del self.steps[min(self.steps)]
        before = ((number, self.steps[number]) for number in sorted(self.steps) if number < step)
        return [*((number, kept[what]) for number, kept in before if what in kept), (step, value)]
