"""What the trainer computed for the tokens of a trajectory, as far as it was recorded, against the engine."""

from __future__ import annotations

import math

from autotrace.trajectory.model import Span


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


def mean_mismatch(*distances: float) -> float | None:
    """Their mean, short; None of none."""
    return float(f"{sum(distances) / len(distances):.4g}") if distances else None
