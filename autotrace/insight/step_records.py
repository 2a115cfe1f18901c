"""Hold trajectories as lines with their profiles, for detectors of groups, steps and runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, TypeVar

from autotrace.insight.profile import Profile, has_tool_error, is_truncated
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.deferred import cached
from autotrace.trajectory.jsonable import finite, integer, number

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Map each key -> its items, in their order."""
    found: dict[Key, list[Item]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


@dataclass
class Record:
    """Hold a trajectory. None: not known."""

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
        """Return the seconds that the trajectory took."""
        return None if self.end_ns is None or self.start_ns is None else (self.end_ns - self.start_ns) / 1e9

    @cached
    def advantage(self) -> float | None:
        """Return the advantage that the trainer computed; NaN: not a number."""
        return measured(self.facts.get("advantage"))

    @cached
    def score(self) -> float | None:
        """Return the reward; NaN: not a finite number."""
        return self.reward if self.reward is not None else measured(self.facts.get("reward"))

    @cached
    def trained_in_step(self) -> int | None:
        """Return the step whose update used the trajectory."""
        return integer(self.facts.get("trained_in_step"))

    @cached
    def versions(self) -> list[int]:
        """Return the versions of the weights that answered, ascending."""
        told = {turn.weights for turn in self.profile.turns}
        told |= {integer(self.facts.get(name)) for name in ("min_global_steps", "max_global_steps")}
        return sorted(version for version in told if version is not None)

    @cached
    def generated(self) -> int | None:
        """Count the tokens generated over all turns; None: no turn's tokens are known."""
        counts = [turn.response for turn in self.profile.turns if turn.response is not None]
        return sum(counts) if counts else None

    def members(self, fact: str) -> Mapping[Any, Any]:
        """Return the members of a fact; empty for a fact without members."""
        value = self.facts.get(fact)
        return value if isinstance(value, dict) else {}

    def traits(self, name: str) -> list[str]:
        """Return the words of the traits that are declared under ``name``."""
        return [trait.text for trait in self.profile.traits if trait.name == name]

    def has(self, *codes: str) -> bool:
        """Return whether the trajectory has a mark with one of ``codes``."""
        return any(mark.code in codes for mark in self.profile.marks)

    @property
    def truncated(self) -> bool:
        """Return whether the answer was cut at a limit."""
        return bool(is_truncated(self.profile))

    @property
    def tools_failed(self) -> bool:
        """Return whether a tool failed."""
        return bool(has_tool_error(self.profile))

    @property
    def failed(self) -> bool:
        """Return whether the trajectory failed; a cancelled trajectory did not fail."""
        return self.status not in ("OK", "OPEN", "CANCELLED")


def measured(value: Any) -> float | None:
    """Convert ``value`` to a float, if possible; NaN for the text of a value that is not finite."""
    if isinstance(value, str):  # JSON has no number for such values
        return math.nan if value.lower().lstrip("+-") in ("nan", "inf", "infinity") else None
    return number(value)


@dataclass
class Group:
    """Hold the rollouts of one prompt in one step."""

    key: str
    records: list[Record]
    settings: TrainerSettings

    @cached_property
    def rewards(self) -> list[float]:
        """Return the known, finite rewards."""
        return [score for record in self.records if (score := finite(record.score)) is not None]

    @cached_property
    def finished(self) -> list[Record]:
        """Return all rollouts except failed rollouts."""
        return [record for record in self.records if not record.failed]

    @cached_property
    def is_flat(self) -> bool:
        """Return whether the group has several rewards and all are equal: nothing to learn from."""
        return len(self.rewards) > 1 and max(self.rewards) - min(self.rewards) <= 1e-6


@dataclass
class Step:
    """Hold the trajectories of a step, split into ``training`` and ``validation``."""

    number: int | None
    records: list[Record]
    settings: TrainerSettings
    live: bool = False
    """Tell that the run goes on."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Map metric -> value, as the trainer logged the metric."""
    computed: Mapping[str, float] = field(default_factory=dict)
    """Map the same names -> values computed from the log-probabilities of the trajectories; ``left``: the number of
    trajectories that were not read."""
    found: dict[str, set[str]] = field(default_factory=dict)
    """Map trace id -> codes that detectors of groups and steps found (``diagnose.hits``)."""

    @cached_property
    def training(self) -> list[Record]:
        return [record for record in self.records if not record.validate]

    @cached_property
    def validation(self) -> list[Record]:
        return [record for record in self.records if record.validate]

    @cached_property
    def groups(self) -> list[Group]:
        """Return the groups of training, in the order of their first trajectory. Of a repeated rollout only the last
        attempt counts."""
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
        """Count the rollouts of a group, as configured or as in the largest group."""
        return self.settings.rollout_n or max((len(group.records) for group in self.groups), default=0)

    @cached_property
    def has_whole_groups(self) -> bool:
        """Return whether most groups have all their rollouts; otherwise some rollouts were not recorded."""
        return sum(len(group.records) >= self.rollouts for group in self.groups) * 2 > len(self.groups)

    @cached_property
    def trains(self) -> bool:
        """Return whether a trainer is known to learn from the rollouts."""
        return self.settings.trains or any(
            record.advantage is not None or record.trained_in_step is not None for record in self.training
        )

    @property
    def is_sync(self) -> bool:
        """Return whether the trainer is known to wait for this step's rollouts; a trainer that does not wait counts no
        steps."""
        return self.settings.is_sync and self.number is not None and self.number >= 0

    @cached_property
    def wall_s(self) -> float:
        """Sum the seconds from the first start to the last end of the training rollouts."""
        starts = [record.start_ns for record in self.training if record.start_ns is not None]
        ends = [record.end_ns for record in self.training if record.end_ns is not None]
        return (max(ends) - min(starts)) / 1e9 if starts and ends else 0.0


@dataclass(frozen=True)
class Hit:
    """Hold a trajectory that has a finding."""

    code: str
    record: Record
    turn: int | None = None
    token: int | None = None
    note: str = ""
    kind: str = ""
    seconds: float | None = None


ENDS = 3
"""Take the median of so many steps at each end of a curve."""


@dataclass
class Curve:
    """Hold a metric over the steps so far, in the order of the steps."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def put(self, step: int, value: float) -> None:
        """Keep the value of a step, and replace an earlier value of the same step."""
        at = bisect_left(self.steps, step)
        known = self.steps[at : at + 1] == [step]
        self.steps[at : at + known], self.values[at : at + known] = [step], [value]

    @property
    def first(self) -> float:
        return median(self.values[:ENDS])

    @property
    def last(self) -> float:
        return median(self.values[-ENDS:])

    @property
    def words(self) -> str:
        return f"{self.first:.3g} at first, {self.last:.3g} now"


KEPT_STEPS = 64
"""Limit the steps that ``History`` keeps."""
Kept = TypeVar("Kept")


class History:
    """Keep a few values of each earlier step for detectors that compare steps; ``diagnose`` owns the history."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[Hashable, Any]] = {}
        self.curves: dict[str, Curve] = {}
        """Map metric -> curve over all steps."""
        self.looked = 0
        """Count the steps of the curves."""
        self.of_curves: list[tuple[str, str]] = []
        """List the last faults of whole curves: code and note."""

    def up_to(self, step: int, what: Hashable, value: Kept) -> list[tuple[int, Kept]]:
        """Keep the ``value`` of ``what`` in ``step``. Returns the steps up to this step, which comes last, each with
        its value of ``what``."""
        self.steps.setdefault(step, {})[what] = value
        while len(self.steps) > KEPT_STEPS:
            del self.steps[min(self.steps)]
        before = ((number, self.steps[number]) for number in sorted(self.steps) if number < step)
        return [*((number, kept[what]) for number, kept in before if what in kept), (step, value)]
