"""Find faults in curves of the trainer's own metrics over many steps, by the names that veRL, TRL and others log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import correlation, fmean, linear_regression, median, pstdev
from typing import NamedTuple

from autotrace.insight.families.rewards import FORM
from autotrace.insight.finding import Code
from autotrace.insight.profile import Profile
from autotrace.insight.step_records import History, Hit, Record, Step
from autotrace.trajectory.jsonable import finite
from autotrace.trajectory.model import OK

FEW, MANY, EVALUATED = 8, 100, 6
"""Require so many steps of a curve, so many steps of a flat curve, and so many known evaluations."""
ENDS = 3
"""Take the median of so many steps at each end of a curve."""
NAMES = {
    "entropy": r"(?:^|/|_)entropy(?:_loss)?$",
    "kl": r"(?:^|/)(?:kl|kl_loss|ppo_kl|approxkl|objective_kl)(?:/mean)?$",
    "clip": r"clip_?frac(?:_avg|_lower|_higher)?$|clip_ratio/(?:region|low|high)_mean$",
    "gradient": r"(?:^|/)grad_norm$",
    "cut": r"(?:clipped_ratio|response_length/clip_ratio)$",
    "length": r"(?:completions/mean_length|response_length/mean)$",
    "flat": r"frac_reward_zero_std$|zero_std_frac$",
    "reward": r"^(?:reward|train/reward|rewards?/mean|critic/(?:score|rewards)/mean)$",
    "held out": r"^(?:val|eval|test|validation)[-/_].*(?:acc|score|reward)",
}
"""Map curve -> the names under which trainers log the curve."""
_NAMED = {curve: re.compile(pattern) for curve, pattern in NAMES.items()}
_PART = re.compile(r"^rewards/(.+)/mean$")

CODES = Code.each({
    "AT-ENTROPY-COLLAPSED": 0.7, "AT-KL-DRIFT": 0.6, "AT-CLIP-SATURATED": 0.5, "AT-GRADIENT-SPIKES": 0.4,
    "AT-LENGTH-GREW": 0.3, "AT-REWARD-GAMED": 0.9, "AT-REWARD-FLAT": 0.1,
})  # fmt: skip


class Curve(NamedTuple):
    """Hold a metric over the steps so far."""

    values: list[float]

    @property
    def first(self) -> float:
        return median(self.values[:ENDS])

    @property
    def last(self) -> float:
        return median(self.values[-ENDS:])

    @property
    def words(self) -> str:
        return f"{self.first:.3g} at first, {self.last:.3g} now"


def curves(step: Step, history: History) -> Iterator[Hit]:
    """Find faults in the curves of the run at this step, reported at the step's first rollout. A run without rollouts
    has curves, too: such a hit has a record without an id."""
    if step.number is None or step.number < 0 or not (step.training or (step.metrics and not step.records)):
        return
    at = step.training[0] if step.training else Record("", "", step.number, OK, Profile())
    known = _read(step, history)
    reward = history.curves.get("reward", {})
    near = (
        [reward[at] for at in range(number - 2, number + 3) if at in reward]
        for number in history.curves.get("held out", ())
    )
    for code, note in _found(known, [fmean(values) for values in near if values]):
        yield Hit(code, at, note=note, kind=note.partition(" ")[0])


def _read(step: Step, history: History) -> dict[str, Curve]:
    logged = {name: value for name, value in step.metrics.items() if finite(value) is not None}
    now = {name: next((v for key, v in logged.items() if own.search(key)), None) for name, own in _NAMED.items()}
    for name, records in (("reward", step.training), ("held out", step.validation)):
        scores = [score for record in records if (score := finite(record.score)) is not None]
        now[name] = now[name] if now[name] is not None or not scores else fmean(scores)
    now |= {f"part {part[1]}": value for key, value in logged.items() if (part := _PART.match(key))}
    for name, value in now.items():
        if value is not None:
            history.curves.setdefault(name, {})[step.number or 0] = value
    return {name: Curve([own[number] for number in sorted(own)]) for name, own in history.curves.items()}


def _found(known: dict[str, Curve], beside: list[float]) -> Iterator[tuple[str, str]]:
    """Find faults in ``known`` curves. ``beside``: the training reward around each step with an evaluation."""
    long = {name: curve for name, curve in known.items() if len(curve.values) >= FEW}
    if (entropy := long.get("entropy")) and 0 <= entropy.last <= 0.1 * entropy.first:
        yield "AT-ENTROPY-COLLAPSED", f"entropy {entropy.words}"
    if (kl := long.get("kl")) and kl.last >= 1.0 and kl.last >= 10 * kl.first:
        yield "AT-KL-DRIFT", f"KL {kl.words}"
    if (clip := long.get("clip")) and clip.last >= 0.3:
        yield "AT-CLIP-SATURATED", f"clipped share {clip.words}"
    if gradient := long.get("gradient"):
        middle = median(gradient.values)
        spikes = sum(value > 10 * middle > 0 for value in gradient.values)
        if spikes >= 3:
            yield "AT-GRADIENT-SPIKES", f"norm {spikes} times above 10 x its median of {middle:.3g}"
    length, held = long.get("length"), known.get("held out")
    if held is not None and len(held.values) >= EVALUATED and len(held.values) == len(beside):
        gain, better = (fmean(values[-2:]) - fmean(values[:2]) for values in (beside, held.values))
        fell = max(held.values) - fmean(held.values[-2:]) > max(0.08, 0.4 * gain)
        if gain > 0.15 and (better < 0.25 * gain or fell):
            note = f"reward {fmean(beside[:2]):.3g} at first, {fmean(beside[-2:]):.3g} now; held out {held.words}"
            yield "AT-REWARD-GAMED", note
            if length is not None and length.last >= 1.5 * length.first:
                yield "AT-LENGTH-GREW", f"length {length.words}, while the held-out reward does not follow"
    if (cut := long.get("cut")) and cut.last >= 0.2:
        yield "AT-LENGTH-GREW", f"cut {cut.words} (share of the answers)"
    yield from _flat(long, long.get("reward"))


def _flat(long: dict[str, Curve], train: Curve | None) -> Iterator[tuple[str, str]]:
    if (flat := long.get("flat")) and flat.last >= 0.6:
        yield "AT-REWARD-FLAT", f"groups without variance: {flat.words} (share)"
    if train is None or len(train.values) < MANY:
        return
    late = train.values[-2 * len(train.values) // 5 :]
    slope, _ = linear_regression(range(len(late)), late)
    error = pstdev(late) * math.sqrt(12 / len(late) ** 3)
    if slope < 0.5 * error:
        yield "AT-REWARD-FLAT", f"reward {fmean(late):.3g} over the last {len(late)} steps"
    half = train.values[len(train.values) // 2 :]
    follows = {name: _alike(half, curve.values) for name, curve in long.items() if name.startswith("part ")}
    form = max((value for name, value in follows.items() if FORM.search(name)), default=0.0)
    rest = max((value for name, value in follows.items() if not FORM.search(name)), default=1.0)
    if form > 0.7 > 0.5 > rest:
        yield "AT-REWARD-GAMED", f"reward follows its part for the form (correlation {form:.2f}), not the others"


def _alike(half: Sequence[float], values: Sequence[float]) -> float:
    own = values[-len(half) :]
    return correlation(half, own) if len(own) == len(half) and pstdev(own) and pstdev(half) else 0.0


OF_STEP = (curves,)
