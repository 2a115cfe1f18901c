"""Compare the engine with the trainer: sampling that the trainer does not know about, and the weights that answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotrace.insight.evidence import Evidence
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Record, Step
from autotrace.trajectory.jsonable import number

PARAMETERS = {
    "temperature": 1.0, "top_p": 1.0, "top_k": -1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip
"""Map sampling parameters that change the probabilities -> the value without effect."""
STUCK, STUCK_BESIDE = 3, 5
"""Report so many steps with the same weights; the second number counts if other rollouts have newer weights."""
SPREAD = 2
"""Report so many versions within one trajectory, more than a resumed request has."""

CODES = Code.each({
    "AT-SAMPLING-DIFFERS": 0.7, "AT-SAMPLING-BIASED": 0.4, "AT-WEIGHTS-MIXED": 0.5, "AT-WEIGHTS-STALE": 0.5,
    "AT-WEIGHTS-STUCK": 1.0,
})  # fmt: skip


def sampling(evidence: Evidence) -> Iterator[Mark]:
    """Compare the parameters of the calls with the parameters that the rollout was given."""
    if evidence.trajectory.attributes.get("validate") is True:
        return
    given = evidence.root.inputs.get("sampling_params")
    assumed = evidence.settings.temperature
    if assumed is not None:  # the trainer divides by the configured temperature, whatever the rollout was given
        given = {**(given if isinstance(given, dict) else {}), "temperature": assumed}
    if isinstance(given, dict):
        for call in evidence.turns:
            other = _differs(given, call.sampling)
            if other:
                yield Mark("AT-SAMPLING-DIFFERS", call.number, None, other, other)
                break
    if not evidence.settings.trains:
        return
    effective = evidence.turns[0].sampling if evidence.turns else {}
    used = {name: value for name in PARAMETERS if (value := number(effective.get(name))) is not None}
    odd = [name for name in used if name != "temperature" and not _same(name, used[name], PARAMETERS[name])]
    if note := ", ".join(f"{name} {used[name]:g}" for name in odd):
        yield Mark("AT-SAMPLING-BIASED", 1, None, note, note)


def _differs(given: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    if not used or used == given:
        return ""
    for name, neutral in PARAMETERS.items():
        asked, sent = number(given.get(name)), number(used.get(name))
        if sent is not None and not _same(name, sent, neutral if asked is None else asked):
            return f"{name} {sent:g}" if asked is None else f"{name} {sent:g}, not {asked:g}"
    return ""


def _same(name: str, one: float, other: float) -> bool:
    if name == "top_k":
        return one == other or (one <= 0 and other <= 0)
    return abs(one - other) < 1e-6


def behind(record: Record, step: Step) -> int | None:
    """Count the steps from the trajectory's weights to the start weights of its training step; None: not known."""
    at, known = record.trained_in_step or step.number, record.versions
    return None if at is None or at < 0 or not known else max(0, at - 1 - known[-1])


def weights(step: Step, history: History) -> Iterator[Hit]:
    """Find versions that differ within a trajectory, are behind the step, or stay over the steps."""
    answered = [(record, known) for record in step.training if (known := record.versions)]
    for record, known in answered:
        if known[-1] - known[0] >= SPREAD or (len(known) > 1 and step.is_sync):
            others = (n for n, turn in enumerate(record.profile.turns, 1) if turn.weights not in (None, known[0]))
            yield Hit("AT-WEIGHTS-MIXED", record, next(others, None), None, f"versions {known[0]} to {known[-1]}")
    if step.number is None or step.number < 0 or not answered:
        return
    allowed = 0 if step.is_sync else step.settings.max_off_policy_threshold
    for record, known in answered:
        late = behind(record, step) or 0
        if allowed is not None and known[-1] > 0 and late > allowed:
            yield Hit("AT-WEIGHTS-STALE", record, None, None, f"{late} steps behind", f"{late} steps")
    yield from _stuck(step, history, answered)


def _stuck(step: Step, history: History, answered: list[tuple[Record, list[int]]]) -> Iterator[Hit]:
    all_versions = frozenset(version for _, known in answered for version in known)
    oldest, steps = min(all_versions), history.up_to(step.number or 0, "versions", all_versions)
    is_whole = step.trains and len(all_versions) == 1
    last = steps[-STUCK if is_whole else -STUCK_BESIDE :]
    newest = {max(known) for _, known in last}
    if all(min(known) == oldest for _, known in last) and (
        (is_whole and len(last) == STUCK and newest == {oldest}) or len(newest) == STUCK_BESIDE
    ):
        note = f"version {oldest} in steps {last[0][0]} to {last[-1][0]}"
        note += "" if is_whole else f", others have version {max(newest)}"
        yield from (Hit("AT-WEIGHTS-STUCK", one, note=note) for one, known in answered if known[-1] == oldest)


OF_TRAJECTORY = (sampling,)
OF_STEP = (weights,)
