"""Compute a line per step: rewards, endings and times of the trajectories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from statistics import fmean
from typing import Any

from autotrace.insight.families.engine import behind
from autotrace.insight.families.signal import cause
from autotrace.insight.families.time import PARTS
from autotrace.insight.step_records import Record, Step, grouped
from autotrace.trajectory.jsonable import finite, number


@dataclass(frozen=True)
class StepLine:
    """Hold the line of a step, of a step's validation, or of a data source within a step. None: not known."""

    step: int | None
    validate: bool
    data_source: str | None
    """Name the data source with ``--by data_source``."""
    trajectories: int
    open: int
    failed: int
    """Count the trajectories that failed, without cancelled trajectories."""
    groups: int
    flat: int
    """Count the groups without variance."""
    all_right: int
    all_wrong: int
    reward_mean: float | None
    reward_std: float | None
    reward_parts: dict[str, float]
    """Map each part of the reward that is a number -> mean."""
    truncated: float | None
    """Store the share."""
    errors: dict[str, int]
    """Map status and class of the trajectory's error -> count, with cancelled trajectories."""
    tool_errors: dict[str, int]
    """Map tool -> calls that failed."""
    turns_mean: float | None
    tokens_mean: float | None
    """Store the tokens generated over all turns, over the trajectories with known counts."""
    seconds_p50: float | None
    seconds_p99: float | None
    time: dict[str, float]
    """Map part -> share of the time of all trajectories."""
    cached: float | None
    """Store the share of the prompt tokens of later turns that were in the engine's cache."""
    staleness: float | None
    """Store the mean number of steps that the weights were behind."""
    mismatch_p50: float | None = None
    """Store the mean difference per token between the trainer's and the engine's log-probabilities, over the
    trajectories."""
    mismatch_p99: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Store the metrics that the trainer logged for the step."""
    findings: dict[str, int] = field(default_factory=dict)
    """Map code -> trajectories."""

    def as_dict(self) -> dict[str, Any]:
        """Convert to a dict for ``--json``."""
        return asdict(self)


def line(
    step: Step, records: Sequence[Record], *, validate: bool, data_source: str | None = None,
    findings: Iterable[tuple[str, int]] = (),
) -> StepLine:  # fmt: skip
    """Compute the line of ``records``, which are from ``step``."""
    scores = [score for record in records if (score := finite(record.score)) is not None]
    mean = _mean(scores)
    seconds = sorted(taken for record in records if (taken := record.seconds) is not None)
    groups = (step if records is step.training else Step(step.number, [*records], step.settings)).groups
    judged = [group for group in groups if len(group.rewards) > 1]
    causes = Counter(cause(group, step) for group in judged if group.is_flat)
    done = [record for record in records if record.profile.turns]
    mismatch = sorted(value for record in records if (value := number(record.facts.get("mismatch_mean"))) is not None)
    return StepLine(
        step.number, validate, data_source, len(records),
        open=sum(record.status == "OPEN" for record in records),
        failed=sum(record.failed for record in records),
        groups=len(judged), flat=sum(causes.values()), all_right=causes["all right"], all_wrong=causes["all wrong"],
        reward_mean=mean,
        reward_std=None if mean is None else math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores)),
        reward_parts=_parts(records),
        truncated=sum(record.truncated for record in done) / len(done) if done else None,
        errors=dict(Counter(_class(one) for one in records if one.status not in ("OK", "OPEN")).most_common(5)),
        tool_errors=_tool_errors(records),
        turns_mean=_mean([len(record.profile.turns) for record in done]),
        tokens_mean=_mean([record.generated for record in done if record.generated is not None]),
        seconds_p50=_at(seconds, 0.5), seconds_p99=_at(seconds, 0.99), time=_time(records), cached=_cached(records),
        staleness=_mean([late for record in records if (late := behind(record, step)) is not None]),
        mismatch_p50=_at(mismatch, 0.5), mismatch_p99=_at(mismatch, 0.99),
        metrics={} if validate else dict(step.metrics), findings=dict(findings),
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _at(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _class(record: Record) -> str:
    return f"{record.status} {(record.error or '').partition(':')[0]}".strip()


def _tool_errors(records: Iterable[Record]) -> dict[str, int]:
    failed: Counter[str] = Counter()
    for record in records:
        for tool in record.profile.tools:
            failed[tool.name] += tool.failed
    return dict((+failed).most_common(5))


def _parts(records: Iterable[Record]) -> dict[str, float]:
    told = ((str(name), finite(part)) for one in records for name, part in one.members("reward_extra_info").items())
    known = [(name, part) for name, part in told if part is not None and name != "score"]
    return {name: fmean(part for _, part in own) for name, own in sorted(grouped(known, itemgetter(0)).items())}


def _time(records: Sequence[Record]) -> dict[str, float]:
    sums = {name: sum(record.times.get(name, 0.0) for record in records) for name in PARTS}
    total = sum(sums.values())
    return {name: value / total for name, value in sums.items() if value > 0} if total else {}


def _cached(records: Iterable[Record]) -> float | None:
    later = [turn for record in records for turn in record.profile.turns[1:]]
    known = [(turn.cached, turn.prompt) for turn in later if turn.cached is not None and turn.prompt is not None]
    prompt = sum(count for _, count in known)
    return sum(count for count, _ in known) / prompt if prompt else None
