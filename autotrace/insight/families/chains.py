"""Find faults of branches in training: tokens in no row or in several, rewards of another branch, sessions that
died."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from autotrace.insight.evidence import Evidence
from autotrace.insight.families.signal import BY_GROUP
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Record, Step
from autotrace.trajectory.chains import RESTART, SUB_AGENT
from autotrace.trajectory.jsonable import integer, number
from autotrace.trajectory.model import Span, above
from autotrace.trajectory.receipt import Receipt, of_row, receipt

SAME = 1e-6
"""Treat rewards, and advantages, as equal up to this difference."""

CODES = Code.each({
    "AT-TOKENS-DROPPED": 0.2, "AT-TOKENS-TWICE": 0.3, "AT-BRANCH-REWARD": 1.0, "AT-SESSION-DIED": 1.0,
})  # fmt: skip


def rows(step: Step, history: History) -> Iterator[Hit]:
    """Find tokens of branching trajectories that are in no row, or in several rows."""
    for record in step.training:
        told = _receipt(record)
        if told is not None:
            yield from _dropped(record, told)
            yield from _twice(record, told)


def _receipt(record: Record) -> Receipt | None:
    chains = record.profile.chains
    return receipt(chains, [turn.response for turn in record.profile.turns], record.facts) if chains else None


def _dropped(record: Record, told: Receipt) -> Iterator[Hit]:
    """Find tokens in no row, if the chain of each row is known. Other agents' turns count only if some branch has a
    row: a trainer that makes one row of a trajectory leaves other agents out on purpose."""
    lost, turn = dict[str, int](), None
    for kind, count, first in told.left(record.profile.chains) if told.is_whole else ():
        if not (told.total == 1 and kind in (SUB_AGENT, RESTART)):
            lost[kind] = lost.get(kind, 0) + count
            turn = turn or first
    if lost:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in lost.items())
        note = f"{sum(lost.values()):,} of {sum(told.generated):,} generated tokens ({kinds})"
        yield Hit("AT-TOKENS-DROPPED", record, turn, None, note, max(lost, key=lambda kind: lost[kind]))


def _twice(record: Record, told: Receipt) -> Iterator[Hit]:
    often = [turn for turn, times in enumerate(told.times, 1) if times > 1 and told.generated[turn - 1]]
    if often:
        count, most = sum(told.generated[turn - 1] for turn in often), max(told.times)
        yield Hit("AT-TOKENS-TWICE", record, often[0], None, f"{count:,} generated tokens, up to {most} times")


def others_reward(step: Step, history: History) -> Iterator[Hit]:
    """Find two rows of a trajectory with different rewards, and advantages that are equal or the other way round."""
    if step.settings.adv_estimator not in BY_GROUP:
        return
    for record in step.training:
        told = _receipt(record)
        known = [
            (row, reward, advantage)
            for row in (told.rows if told is not None else ())
            if (reward := number(of_row(record.facts, "reward", row))) is not None
            and (advantage := number(of_row(record.facts, "advantage", row))) is not None
        ]
        for (row, reward, advantage), (other, less, below) in pairwise(known):
            if abs(reward - less) > SAME and (advantage - below) * (reward - less) <= SAME * abs(reward - less):
                note = f"row {row}: reward {reward:.4g}, advantage {advantage:.4g}; "
                note += f"row {other}: reward {less:.4g}, advantage {below:.4g}"
                yield Hit("AT-BRANCH-REWARD", record, note=note)
                break


def died(evidence: Evidence) -> Iterator[Mark]:
    """Find a failed agent program in a rollout that went on as if the program had ended well. The trainer was given the
    program's text so far with a reward of nothing."""
    reward = number(evidence.facts.get("reward"))
    if reward is not None and reward <= 0 and (found := death(evidence)) is not None:
        yield found


def death(evidence: Evidence) -> Mark | None:
    """Find the agent program that failed although the rollout ended well: a finding if the reward is nothing."""
    agent = evidence.agent
    if evidence.root.status != "OK" or agent is None or not any(agent.response_mask or ()):
        return None
    for span in evidence.trajectory.spans:
        if span.role == "agent" and span is not evidence.root and above(span, evidence.by_id, ("llm", "tool")) is None:
            how = _death(span)
            if how is not None:
                return Mark("AT-SESSION-DIED", len(evidence.turns) or None, None, how, span.shown_name)
    return None


def died_later(step: Step, history: History) -> Iterator[Hit]:
    """Find the same fault if the reward was reported after the trajectory was complete."""
    for record in step.records:
        found, reward = record.profile.died, number(record.score)
        if found is not None and reward is not None and reward <= 0 and not record.has(found.code):
            yield Hit(found.code, record, found.turn, None, found.note, found.kind)


def _death(span: Span) -> str | None:
    if span.status in ("ERROR", "TIMEOUT"):
        return span.error_text or span.status
    output: Any = span.output if isinstance(span.output, dict) else {}
    about = output.get("info") if isinstance(output.get("info"), dict) else output
    code = integer(about.get("exit_code", output.get("exit_code")))
    if not code or output.get("finished") is True:
        return None
    said = about.get("stderr")
    return f"exit code {code}" + (f": {said.strip()[-200:]}" if isinstance(said, str) and said.strip() else "")


OF_TRAJECTORY = (died,)
OF_STEP = (rows, others_reward, died_later)
