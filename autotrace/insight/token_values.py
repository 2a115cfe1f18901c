"""What the trainer computed for the tokens of a trajectory, as far as it was recorded, against the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from autotrace.insight.evidence import Evidence
from autotrace.trajectory.model import Span

LONG = 64
"""Tokens from which a response has quarters."""


def differences(span: Span) -> list[float]:
    """Of each token of the model in a call's response, abs(trainer - engine); empty where they are not known."""
    old, engine = span.old_logprobs, span.trained_logprobs or span.logprobs
    if not old or not engine:
        return []
    pairs = zip(old, engine, strict=False)
    if span.role != "llm" and span.response_mask:  # a whole response, tools included
        pairs = (pair for pair, mine in zip(pairs, span.response_mask, strict=False) if mine)  # type: ignore[assignment]
    return [distance for one, other in pairs if math.isfinite(distance := abs(one - other))]


def mean_mismatch(*distances: float) -> float | None:
    """Their mean, short; None of none."""
    return float(f"{sum(distances) / len(distances):.4g}") if distances else None


def drift(evidence: Evidence) -> list[float]:
    """The mean over each quarter of the model's tokens; empty for a short response."""
    distances: Sequence[float] = [one for call in evidence.turns for one in differences(call.span)]
    if not distances and evidence.agent is not None:
        distances = differences(evidence.agent)
    if len(distances) < LONG:
        return []
    bounds = [len(distances) * quarter // 4 for quarter in range(5)]
    parts = (distances[first:last] for first, last in pairwise(bounds))
    return [mean for part in parts if (mean := mean_mismatch(*part)) is not None]
