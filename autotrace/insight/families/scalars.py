"""Find faults in curves of the trainer's own metrics over many steps, by the names that veRL, TRL and others log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import correlation, fmean, linear_regression, median, pstdev

from autotrace.insight.families.rewards import FORM
from autotrace.insight.finding import Code
from autotrace.insight.profile import Profile
from autotrace.insight.step_records import Curve, History, Hit, Record, Step
from autotrace.trajectory.jsonable import finite
from autotrace.trajectory.model import OK

FEW, MANY, EVALUATED = 8, 100, 6
"""Require so many steps of a curve, so many steps of a flat curve, and so many known evaluations."""
OFTEN = 64
"""Look at whole curves so often while the number of steps doubles: all looks take time in proportion to the steps."""
PARTS = 32
"""Read the curves of so many parts of the reward."""
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


def curves(step: Step, history: History) -> Iterator[Hit]:
    """Find faults in the curves of the run at this step, reported at the step's first rollout. A run without rollouts
    has curves, too: such a hit has a record without an id."""
    if step.number is None or step.number < 0 or not (step.training or (step.metrics and not step.records)):
        return
    at = step.training[0] if step.training else Record("", "", step.number, OK, Profile())
    known = _read(step, history)
    history.looked += 1
    if not history.looked % (1 + history.looked // OFTEN):
        history.of_curves = list(_of_whole(known))
    for code, note in (*_of_ends(known), *history.of_curves):
        yield Hit(code, at, note=note, kind=note.partition(" ")[0])


def _read(step: Step, history: History) -> dict[str, Curve]:
    """Return the curves of ``FEW`` and more steps, and the curve of the evaluations."""
    logged = {name: value for name, value in step.metrics.items() if finite(value) is not None}
    now = {name: next((v for key, v in logged.items() if own.search(key)), None) for name, own in _NAMED.items()}
    for name, records in (("reward", step.training), ("held out", step.validation)):
        scores = [score for record in records if (score := finite(record.score)) is not None]
        now[name] = now[name] if now[name] is not None or not scores else fmean(scores)
    now |= {f"part {part[1]}": value for key, value in logged.items() if (part := _PART.match(key))}
    for name, value in now.items():
        is_read = name in _NAMED or name in history.curves or len(history.curves) < PARTS
        if value is not None and is_read:
            history.curves.setdefault(name, Curve()).put(step.number or 0, value)
    return {name: own for name, own in history.curves.items() if len(own.values) >= FEW or name == "held out"}


def _of_ends(known: dict[str, Curve]) -> Iterator[tuple[str, str]]:
    """Find faults that the two ends of a curve show."""
    if (entropy := known.get("entropy")) and 0 <= entropy.last <= 0.1 * entropy.first:
        yield "AT-ENTROPY-COLLAPSED", f"entropy {entropy.words}"
    if (kl := known.get("kl")) and kl.last >= 1.0 and kl.last >= 10 * kl.first:
        yield "AT-KL-DRIFT", f"KL {kl.words}"
    if (clip := known.get("clip")) and clip.last >= 0.3:
        yield "AT-CLIP-SATURATED", f"clipped share {clip.words}"
    if (cut := known.get("cut")) and cut.last >= 0.2:
        yield "AT-LENGTH-GREW", f"cut {cut.words} (share of the answers)"
    if (flat := known.get("flat")) and flat.last >= 0.6:
        yield "AT-REWARD-FLAT", f"groups without variance: {flat.words} (share)"


def _of_whole(known: dict[str, Curve]) -> Iterator[tuple[str, str]]:
    """Find faults that only whole curves show."""
    if gradient := known.get("gradient"):
        middle = median(gradient.values)
        spikes = sum(value > 10 * middle > 0 for value in gradient.values)
        if spikes >= 3:
            yield "AT-GRADIENT-SPIKES", f"norm {spikes} times above 10 x its median of {middle:.3g}"
    train, length, held = known.get("reward", Curve()), known.get("length"), known.get("held out", Curve())
    reward = dict(zip(train.steps, train.values, strict=True))
    near = ([reward[at] for at in range(number - 2, number + 3) if at in reward] for number in held.steps)
    beside = [fmean(values) for values in near if values]
    if EVALUATED <= len(held.values) == len(beside):
        gain, better = (fmean(values[-2:]) - fmean(values[:2]) for values in (beside, held.values))
        fell = max(held.values) - fmean(held.values[-2:]) > max(0.08, 0.4 * gain)
        if gain > 0.15 and (better < 0.25 * gain or fell):
            note = f"reward {fmean(beside[:2]):.3g} at first, {fmean(beside[-2:]):.3g} now; held out {held.words}"
            yield "AT-REWARD-GAMED", note
            if length is not None and length.last >= 1.5 * length.first:
                yield "AT-LENGTH-GREW", f"length {length.words}, while the held-out reward does not follow"
    if len(train.values) >= MANY:
        yield from _flat(known, train)


def _flat(known: dict[str, Curve], train: Curve) -> Iterator[tuple[str, str]]:
    late = train.values[-2 * len(train.values) // 5 :]
    slope, _ = linear_regression(range(len(late)), late)
    error = pstdev(late) * math.sqrt(12 / len(late) ** 3)
    if slope < 0.5 * error:
        yield "AT-REWARD-FLAT", f"reward {fmean(late):.3g} over the last {len(late)} steps"
    half = train.values[len(train.values) // 2 :]
    follows = {name: _alike(half, curve.values) for name, curve in known.items() if name.startswith("part ")}
    form = max((value for name, value in follows.items() if FORM.search(name)), default=0.0)
    rest = max((value for name, value in follows.items() if not FORM.search(name)), default=1.0)
    if form > 0.7 > 0.5 > rest:
        yield "AT-REWARD-GAMED", f"reward follows its part for the form (correlation {form:.2f}), not the others"


def _alike(half: Sequence[float], values: Sequence[float]) -> float:
    own = values[-len(half) :]
    return correlation(half, own) if len(own) == len(half) and len({*own}) > 1 < len({*half}) else 0.0


OF_STEP = (curves,)
