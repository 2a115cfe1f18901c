"""What the trainer computed for the tokens of a trajectory, as far as it was recorded, against the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from autotrace.insight.evidence import Evidence
from autotrace.trajectory.model import Span

LONG = 64
"""Tokens from which a response has quarters."""


def by_token(span: Span) -> list[tuple[int, float]]:
    """Index in a call's response and abs(trainer - engine) of each token of the model; empty where they are not
    known."""
    old, engine = span.old_logprobs, span.trained_logprobs or span.logprobs
    if not old or not engine:
        return []
    mask = span.response_mask if span.role != "llm" else None  # a whole response, tools included
    return [
        (at, distance)
        for at, (one, other) in enumerate(zip(old, engine, strict=False))
        if (not mask or mask[at : at + 1] == [1]) and math.isfinite(distance := abs(one - other))
    ]


def differences(span: Span) -> list[float]:
    """The same without the indexes."""
    return [distance for _, distance in by_token(span)]


def mean_mismatch(*distances: float) -> float | None:
    """Their mean, short; None of none."""
    return float(f"{sum(distances) / len(distances):.4g}") if distances else None


def drift(evidence: Evidence) -> list[float]:
    """The mean over each quarter of the model's tokens; empty for a short response."""
    if not any(span.old_logprobs for span in evidence.trajectory.spans):
        return []
    distances: Sequence[float] = [one for call in evidence.turns for one in differences(call.span)]
    if not distances and evidence.agent is not None:
        distances = differences(evidence.agent)
    if len(distances) < LONG:
        return []
    bounds = [len(distances) * quarter // 4 for quarter in range(5)]
    parts = (distances[first:last] for first, last in pairwise(bounds))
    return [mean for part in parts if (mean := mean_mismatch(*part)) is not None]
