"""Rewards for the form of an answer: an audit, which counts what is suspicious and cannot tell what was meant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import median

from autotrace.insight.finding import Code
from autotrace.insight.records import History, Hit, Record, Step
from autotrace.trajectory.jsonable import finite

ROWS, RIGHT, SHARE, FEWEST = 16, 4, 0.05, 3
"""Rows with parts of a reward, right ones among them, share and number of suspicious ones: below these nothing is
said."""
SHORT = 0.3
"""Of the usual length of a right answer: what is shorter says nothing but the form."""
_FORM = re.compile(r"format|fmt|tag|structure|syntax|template|xml|json|schema|style|think", re.IGNORECASE)
_TRUTH = re.compile(
    r"acc|correct|right|exact|match|pass|solved|solution|success|truth|answer|outcome|verif|grade|\bem\b|\bf1\b",
    re.IGNORECASE,
)

CODES = (Code.of("AT-FORMAT-GAMED", 0.5),)


def gamed(step: Step, history: History) -> Iterator[Hit]:
    """Rows that are paid for their form alone."""
    if not any(_FORM.search(str(name)) for name in _names(step.training)):
        return
    rows = [
        (record, *parts, length)
        for record in step.training
        if (parts := _parts(record)) is not None and (length := _tokens(record)) is not None
    ]
    best = max((form for _, form, _, _ in rows), default=0.0)
    right = [length for _, _, truth, length in rows if truth > 0]
    if len(rows) < ROWS or best <= 0 or len(right) < RIGHT:
        return
    usual, lowest = median(right), min((record.score or 0.0) for record, _, _, _ in rows)
    suspicious = [
        (record, length)
        for record, form, truth, length in rows
        if form >= best and truth <= 0 and length <= SHORT * usual and (record.score or 0.0) > lowest
    ]
    if len(suspicious) < max(FEWEST, SHARE * len(rows)):
        return
    low, high = _range(len(suspicious), len(rows))
    for record, length in suspicious:
        note = (
            f"{length} tokens, right answers have {usual:.0f}; {len(suspicious)} of {len(rows)} rows "
            f"({low:.0%} to {high:.0%})"
        )
        yield Hit("AT-FORMAT-GAMED", record, len(record.profile.turns) or None, note=note)


def _names(records: list[Record]) -> set[object]:
    """Of the parts of their rewards."""
    parts = (record.facts.get("reward_extra_info") for record in records)
    return {name for part in parts if isinstance(part, dict) for name in part}


def _parts(record: Record) -> tuple[float, float] | None:
    """What was paid for the form and for the truth; None: the reward has no such parts."""
    extra = record.facts.get("reward_extra_info")
    if not isinstance(extra, dict) or finite(record.score) is None:
        return None
    form = [value for name, part in extra.items() if _FORM.search(str(name)) and (value := finite(part)) is not None]
    truth = [value for name, part in extra.items() if _is_truth(name) and (value := finite(part)) is not None]
    return (max(form), max(truth)) if form and truth else None


def _is_truth(name: object) -> bool:
    return _TRUTH.search(str(name)) is not None and _FORM.search(str(name)) is None


def _tokens(record: Record) -> int | None:
    """That it said; None: not known of all its turns."""
    counts = [turn.response for turn in record.profile.turns]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _range(count: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, 95 %."""
    z, share = 1.96, count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return max(0.0, middle - half), min(1.0, middle + half)


OF_STEP = (gamed,)
