"""Compare the trainer's log-probabilities with the engine's: of a step, of single trajectories, along the response."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from autotrace.insight.families.engine import behind
from autotrace.insight.finding import Code
from autotrace.insight.step_records import History, Hit, Record, Step
from autotrace.trajectory.chains import path
from autotrace.trajectory.jsonable import integer, number
from autotrace.trajectory.model import Span
from autotrace.trajectory.receipt import receipt

DIFF, K3 = 0.03, 0.05
"""Limit a step's mean difference of probabilities, and its estimate of the divergence."""
ROSE, ROSE_FROM, ROSE_STEPS, USUAL = 3.0, 0.01, 3, 20
"""... or so many times the median of the steps before, if there are some; at most so many steps count."""
OUTLIER, OUTLIER_FROM, OUTLIER_TOKENS = 8.0, 0.05, 8
"""Limit a trajectory: so many times the median of its step, at least so much a token, over at least so many tokens."""
OUTLIERS = 0.2
"""Limit the share of a step's trajectories that count as outliers."""
GROWS, GROWS_FROM, GROWS_FEW = 4.0, 0.02, 8
"""Limit a response: the end against the beginning, at least so much a token, in at least so many trajectories."""
ONE_SIDED = 0.5
"""Name the sign of the mismatch above this share of mismatch with one sign."""

CODES = Code.each({
    "AT-MISMATCH": 0.8, "AT-MISMATCH-TRAJECTORY": 0.8, "AT-MISMATCH-GROWS": 0.6, "AT-LOGPROB-INVALID": 1.0,
})  # fmt: skip


class _Row(NamedTuple):
    """Hold a trajectory with the figures of its tokens."""

    record: Record
    tokens: int
    mean: float
    diff: float
    k3: float
    log_ratio: float


def differs(step: Step, history: History) -> Iterator[Hit]:
    """Find a step that differs as a whole, and single trajectories that differ; a single trajectory does not count for
    the step."""
    rows = [row for record in step.training if (row := _row(record)) is not None and not _is_stale(record, step)]
    if not rows:
        return
    middle = median(row.mean for row in rows)
    odd = [row for row in rows if row.tokens >= OUTLIER_TOKENS and row.mean > max(OUTLIER_FROM, OUTLIER * middle)]
    if len(odd) > OUTLIERS * len(rows):
        odd = []
    whole = [row for row in rows if row not in odd]
    diff, k3, signed, size = _means(whole)
    *before, _ = history.up_to(-1 if step.number is None else step.number, "mismatch", diff)
    usual = median(value for _, value in before[-USUAL:]) if len(before) >= ROSE_STEPS else None
    rose = usual is not None and diff > max(ROSE_FROM, ROSE * usual)
    if diff > DIFF or k3 > K3 or rose:
        kind = _direction(signed, size)
        worst = sorted(whole, key=lambda row: -row.diff)
        for row in [row for row in worst if row.diff >= diff / 2] or worst[:1]:
            yield _hit("AT-MISMATCH", row, kind)
    for row in odd:
        yield _hit("AT-MISMATCH-TRAJECTORY", row, _direction(row.log_ratio, row.mean))


def _means(rows: Sequence[_Row]) -> list[float]:
    """Compute over the rows' tokens: difference of probabilities, divergence, difference with its sign, and without."""
    tokens = sum(row.tokens for row in rows)
    columns = zip(*((row.diff, row.k3, row.log_ratio, row.mean) for row in rows), strict=True)
    return [sum(value * row.tokens for value, row in zip(column, rows, strict=True)) / tokens for column in columns]


def _row(record: Record) -> _Row | None:
    if not (facts := record.members("token_facts")):
        return None
    names = ("mismatch_mean", "probs_diff_mean", "k3_mean", "log_ratio_mean")
    mean, diff, k3, log_ratio = (number(facts.get(name)) for name in names)
    tokens = integer(facts.get("tokens")) or 0
    if tokens <= 0 or mean is None or diff is None or k3 is None or log_ratio is None:
        return None
    return _Row(record, tokens, mean, diff, k3, log_ratio)


def _is_stale(record: Record, step: Step) -> bool:
    """Return whether older weights, or several versions, answered: the two then differ on purpose. A trainer that waits
    for rollouts has no stale rollouts."""
    return not step.is_sync and (len(record.versions) > 1 or bool(behind(record, step)))


def _direction(signed: float, size: float) -> str:
    if abs(signed) < ONE_SIDED * size:
        return "both ways"
    return "the engine is surer" if signed < 0 else "the trainer is surer"


def _hit(code: str, row: _Row, kind: str) -> Hit:
    facts = row.record.members("token_facts")
    turn, token = place(row.record, integer(facts.get("mismatch_at")))
    largest = number(facts.get("mismatch_max")) or 0.0
    return Hit(code, row.record, turn, token, f"mean |Δ logprob| {row.mean:.2g}, max {largest:.2g} ({kind})", kind)


def place(record: Record, at: int | None) -> tuple[int | None, int | None]:
    """Return the turn of a token of the response, and the token's index in the turn's answer; None if the turns do not
    tell."""
    turns = [*enumerate(record.profile.turns, 1)]
    if chains := record.profile.chains:
        told = receipt(chains, [turn.response for _, turn in turns], record.facts)
        first = [path(chains, chain) for chain in chains if told is not None and told.row.get(chain.number) == 0]
        turns = [turns[number - 1] for number in first[0]] if first else []
    if at is None or not turns or (begin := turns[0][1].prompt) is None:
        return None, None
    for count, turn in turns:
        start = (turn.prompt or 0) - begin
        if 0 <= start <= at < start + (turn.response or 0):
            return count, at - start
    return None, None


def grows(step: Step, history: History) -> Iterator[Hit]:
    """Compare the last turn of recorded responses, or the last quarter, with the first."""
    records = [one for one in step.training if one.members("token_facts") and not _is_stale(one, step)]
    for name, words in (("by_turn", ("first turn", "last")), ("by_length", ("first quarter", "last"))):
        rows = [(record, ends) for record in records if (ends := _ends(record, name))]
        first = sum(ends[0] for _, ends in rows) / max(1, len(rows))
        last = sum(ends[1] for _, ends in rows) / max(1, len(rows))
        if len(rows) < GROWS_FEW or last < max(GROWS_FROM, GROWS * first):
            continue
        for record, ends in rows:
            if ends[1] >= max(GROWS_FROM, GROWS * ends[0]):
                turn = len(record.profile.turns) if record.profile.turns else None
                note = f"mean |Δ logprob| {ends[0]:.2g} in the {words[0]}, {ends[1]:.2g} in the {words[1]}"
                yield Hit("AT-MISMATCH-GROWS", record, turn, None, note, name.replace("_", " "))
        return


def _ends(record: Record, name: str) -> tuple[float, float] | None:
    """Return the first and the last of the means along a response; None without two means."""
    given = record.members("token_facts").get(name)
    means = [number(mean) for mean in given] if isinstance(given, list) else []
    known = [mean for mean in means if mean is not None]
    return (known[0], known[-1]) if len(known) > 1 else None


def invalid(step: Step, history: History) -> Iterator[Hit]:
    """Find tokens whose log-probability is not a number."""
    for record in step.training:
        if count := integer(record.members("token_facts").get("not_finite")):
            yield Hit("AT-LOGPROB-INVALID", record, note=f"{count} tokens")


def by_token(span: Span) -> list[float] | None:
    """Return the trainer's log-probability minus the engine's for each token of a response, NaN for an unknown value;
    None: no value is known."""
    engine = span.logprobs if span.trained_logprobs is None else span.trained_logprobs
    if span.old_logprobs is None or engine is None:
        return None
    pairs = zip(span.old_logprobs, engine, strict=False)
    return [math.nan if one is None or other is None else one - other for one, other in pairs]


OF_STEP = (differs, grows, invalid)
