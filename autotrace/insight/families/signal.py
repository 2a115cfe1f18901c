"""Find groups and rows without anything to learn: no variance, equal rollouts, wrong advantages, rows not trained
on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from autotrace.insight.finding import GROUPS, Code
from autotrace.insight.step_records import Group, History, Hit, Record, Step, grouped
from autotrace.trajectory.jsonable import finite, integer

CAUSE_SHARE = 0.2
"""Limit the share of a step's groups that are flat for one bad cause."""
FLAT_SHARE = 0.8
FEW_GROUPS = 4
"""Ignore a share of fewer groups."""
HEALTHY, CHANCE, MANY_GROUPS = 0.5, 0.001, 200
"""Set the share of flat groups in a healthy run, half of the groups right and half wrong; the probability by chance
below which a step is reported; the number of groups up to which chance is tested."""
BY_GROUP = frozenset(
    {"grpo", "grpo_passk", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus_baseline"}
)
"""List estimators that compare a rollout with its group: the advantage has the sign of the rollout's difference."""
ROLLOUTS = 8
"""Require so many rollouts in a step: equal prompts in different groups are then no accident."""
APART = 0.25
"""Require so many standard deviations between a reward and its group's mean before a sign counts as wrong."""

CODES = Code.each({
    "AT-NO-SIGNAL": 0.6, "AT-NO-SIGNAL-TRUNCATED": 0.8, "AT-NO-SIGNAL-ERRORS": 0.8,
}, unit=GROUPS) + Code.each({
    "AT-DUPLICATE-ROLLOUTS": 0.7, "AT-GROUP-INCOMPLETE": 0.6, "AT-GROUP-OF-ONE": 1.0, "AT-ADVANTAGE-NAN": 1.0,
    "AT-ADVANTAGE-WRONG": 1.0, "AT-NOT-TRAINED": 0.5, "AT-GROUP-MIXED": 1.0, "AT-TRAINED-TWICE": 0.5,
    "AT-ONE-PROMPT": 0.6,
})  # fmt: skip


def flat_groups(step: Step, history: History) -> Iterator[Hit]:
    """Find groups without variance: too many groups, or for one bad cause."""
    judged = [group for group in step.groups if len(group.rewards) > 1]
    flat = [group for group in judged if group.is_flat]
    by_cause = grouped(flat, lambda group: cause(group, step))
    for kind, code in (("all cut", "AT-NO-SIGNAL-TRUNCATED"), ("all failed", "AT-NO-SIGNAL-ERRORS")):
        groups = by_cause.get(kind, [])
        if len(groups) > CAUSE_SHARE * len(judged):
            yield from (Hit(code, record, kind=kind) for group in groups for record in group.records)
    rest = [group for kind, groups in by_cause.items() if kind not in ("all cut", "all failed") for group in groups]
    if len(judged) >= FEW_GROUPS and len(rest) > FLAT_SHARE * len(judged) and not _by_chance(by_cause, rest, judged):
        yield from (Hit("AT-NO-SIGNAL", group.records[0], kind=cause(group, step)) for group in rest)


def _by_chance(by_cause: Mapping[str, list[Group]], rest: Sequence[Group], judged: Sequence[Group]) -> bool:
    """Return whether a healthy run shows as many flat groups, in all or for one cause, in a step of few groups. (If all
    groups are flat, chance is no excuse.)"""
    if len(rest) == len(judged):
        return False
    most = max(len(groups) for groups in by_cause.values())
    each = (_at_least(len(rest), len(judged), HEALTHY), _at_least(most, len(judged), HEALTHY / 2))
    return len(judged) <= MANY_GROUPS and min(each) > CHANCE


def _at_least(count: int, of: int, share: float) -> float:
    """Compute the probability of ``count`` or more."""
    return sum(math.comb(of, n) * share**n * (1 - share) ** (of - n) for n in range(count, of + 1))


def cause(group: Group, step: Step) -> str:
    """Return why a group's rewards are equal: ``all cut``, ``all failed``, ``all right``, ``all wrong``, ``all
    equal``."""
    if all(record.truncated for record in group.records):
        return "all cut"
    if all(record.tools_failed or record.has("AT-REWARD-RAISES", "AT-REWARD-TIMEOUT") for record in group.records):
        return "all failed"
    scores = [score for other in step.groups for score in other.rewards]
    if max(scores) - min(scores) > 1e-6:
        if group.rewards[0] >= max(scores) - 1e-6:
            return "all right"
        if group.rewards[0] <= min(scores) + 1e-6:
            return "all wrong"
    return "all equal"


def alike(group: Group, step: Step) -> Iterator[Hit]:
    """Find rollouts with equal answers."""
    said = Counter(record.profile.answers for record in group.records if record.profile.answers)
    for answers, count in said.most_common(1):
        if count >= 2 and count * 2 >= len(group.records):
            same = [record for record in group.records if record.profile.answers == answers]
            note = f"{count} of {len(group.records)}"
            yield from (Hit("AT-DUPLICATE-ROLLOUTS", record, 1, note=note) for record in same)


def incomplete(step: Step, history: History) -> Iterator[Hit]:
    """Find groups that lack rollouts: some failed, or were not made though most groups have the configured number."""
    groups = [group for group in step.groups if group.records[0].uid is not None]
    if not groups or step.live:
        return
    n = step.rollouts
    for group in groups:
        failed, missing = len(group.records) - len(group.finished), n - len(group.records)
        if failed or (missing > 0 and step.settings.rollout_n is not None and step.has_whole_groups):
            note = f"{len(group.finished)} of {max(n, len(group.records))} rollouts"
            yield from (Hit("AT-GROUP-INCOMPLETE", record, note=note) for record in group.finished or group.records)
            if len(group.finished) == 1 < n:
                yield Hit("AT-GROUP-OF-ONE", group.finished[0], note=f"1 of {n} rollouts")


def ungrouped(step: Step, history: History) -> Iterator[Hit]:
    """Find rollouts of equal prompts, or with several numbers, each in a group of its own."""
    alone = [group.records[0] for group in step.groups if len(group.records) == 1 and group.records[0].uid is not None]
    prompts = Counter(record.profile.asked for record in alone if record.profile.asked)
    is_numbered = len({record.rollout_n for record in alone}) > 1
    twins = [record for record in alone if is_numbered or prompts[record.profile.asked] > 1]
    if step.number is not None and len(alone) == len(step.training) >= ROLLOUTS and 2 * len(twins) > len(alone):
        kind = f"{len(alone)} rollouts have {len(alone)} group ids"
        yield from (Hit("AT-GROUP-OF-ONE", record, note=kind, kind=kind) for record in twins)


def advantages(group: Group, step: Step) -> Iterator[Hit]:
    """Find advantages that are not numbers, or have the wrong sign."""
    for record in group.records:
        if record.advantage is not None and math.isnan(record.advantage):
            yield Hit("AT-ADVANTAGE-NAN", record)
    having = [
        (record, score, advantage)
        for record in group.records
        if (score := finite(record.score)) is not None and (advantage := finite(record.advantage)) is not None
    ]
    if step.settings.adv_estimator not in BY_GROUP or len(having) < 2 or group.is_flat:
        return
    scores = [score for _, score, _ in having]
    mean = sum(scores) / len(scores)
    spread = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
    for record, score, advantage in having:
        if abs(score - mean) > APART * spread > 0 and advantage * (score - mean) <= 0:
            note = f"reward {score:.4g}, mean of the group {mean:.4g}, advantage {advantage:.4g}"
            yield Hit("AT-ADVANTAGE-WRONG", record, note=note)


def mixed(group: Group, step: Step) -> Iterator[Hit]:
    """Find several prompts in one group, each with several rollouts: unlike rewards are then compared. A number that a
    single rollout has is an id of the rollout, and no part of the prompt."""
    known = [record for record in group.records if record.profile.prompt and record.uid is not None]
    shared = [column for column in _numbers(known) if min(Counter(column).values()) > 1]
    words = [record.profile.prompt for record in known]
    for prompts in (words, list(zip(words, *shared, strict=True))):
        if len(often := Counter(prompts)) > 1 and min(often.values()) > 1:
            note = f"{len(often)} prompts in a group of {len(group.records)}"
            for record, prompt in zip(known, prompts, strict=True):
                other = known[next(at for at, one in enumerate(prompts) if one != prompt)].trace_id
                yield Hit("AT-GROUP-MIXED", record, 1, note=f"{note}; {other[:12]} has another prompt")
            return


def _numbers(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the numbers of the first prompts: the first number of each rollout, the second number, ..."""
    return list(zip_longest(*(record.profile.numbers.split() for record in records), fillvalue=""))


def one_prompt(step: Step, history: History) -> Iterator[Hit]:
    """Find a step of several groups with a single prompt. A number that differs within a group is an id of the
    rollout, and no part of the prompt."""
    known = [record for record in step.training if record.profile.prompt and record.uid is not None]
    groups = {record.group for record in known}
    several = len({record.profile.prompt for record in known})
    for column in ([record.profile.asked for record in known], *_numbers(known)):
        if len({(record.group, value) for record, value in zip(known, column, strict=True)}) == len(groups):
            several = max(several, len(set(column)))
    before = [] if step.number is None else history.up_to(step.number, "prompts", several)[:-1]
    if several == 1 and len(groups) >= FEW_GROUPS and len(step.training) == len(known) >= 2 * len(groups):
        had = any(count > 1 for _, count in before)
        kind = "earlier steps have several prompts" if had else "no step has another prompt"
        note = f"{len(groups)} groups have the same prompt"
        yield from (Hit("AT-ONE-PROMPT", record, 1, note=note, kind=kind) for record in known)


def untrained(step: Step, history: History) -> Iterator[Hit]:
    """Find rows of a trained step that were not trained on."""
    trained = [record for record in step.training if record.trained_in_step is not None]
    if not trained or not step.is_sync:
        return
    for record in step.training:
        if record.trained_in_step is None and record.status == "OK" and not record.facts.get("dropped"):
            yield Hit("AT-NOT-TRAINED", record)


def trained_twice(group: Group, step: Step) -> Iterator[Hit]:
    """Find rows that were in several batches, or more often in one batch than the group has rollouts. (The trainer
    names rows by their text, so the exact row among equal rows is not known.)"""
    if not any("trained_in_steps" in record.facts for record in group.records):
        return
    times = {record.trace_id: _times_trained(record) for record in group.records}
    is_whole = len(group.records) >= step.rollouts
    often = is_whole and sum(len(steps) for steps in times.values()) > len(group.records)
    for record in group.records:
        steps = times[record.trace_id]
        if len(set(steps)) > 1 or (often and len(steps) > 1):
            note = f"{len(steps)} times, in step{'s' if len(set(steps)) > 1 else ''} {_listed(steps)}"
            yield Hit("AT-TRAINED-TWICE", record, note=note)


def _times_trained(record: Record) -> list[int]:
    given = record.facts.get("trained_in_steps")
    steps = given if isinstance(given, list) else [record.facts.get("trained_in_step")]
    return [step for step in map(integer, steps) if step is not None]


def _listed(steps: list[int]) -> str:
    distinct = sorted(set(steps))
    return ", ".join(map(str, distinct[:5])) + (", ..." if len(distinct) > 5 else "")


OF_GROUP = (alike, advantages, trained_twice, mixed)
OF_STEP = (flat_groups, incomplete, ungrouped, untrained, one_prompt)
