"""Probabilities for an engine that plays a script: functions of what was said before, so that a trainer that computes
them from the same tokens gets the same numbers, and from other tokens others.

The vocabulary has ``LANES`` words; which of them a token is, its context decides as a sampler would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LANES = 16
SPREAD = 2.0
"""Standard deviation of the logits."""
_MASK = (1 << 64) - 1
Array = Any
"""Of numpy."""


@dataclass(frozen=True)
class Policy:
    """The model as one of the two sides computes it."""

    noise: float = 0.0
    """Standard deviation by which each logit differs from the true one: precision, or other weights."""
    grows: float = 0.0
    """So much more of it for each hundred tokens of the context."""
    after: int = 0
    """Tokens of the context before which nothing differs."""
    odd: float = 0.0
    """Share of tokens that differ by 2, as where an expert was chosen otherwise."""
    seed: int = 1
    """Whose noise it is."""
    temperature: float | None = None
    """None: as asked for."""
    top_p: float = 1.0

    def log_probs(self, contexts: Array, places: Array, temperature: float) -> Array:
        """Of every word behind each context, whose lengths are ``places``."""
        logits = SPREAD * _normal(contexts, 0)
        sizes = np.where(places >= self.after, self.noise + self.grows * places / 100, 0.0)
        sizes = np.where(_uniform(contexts ^ np.uint64(self.seed), 5)[:, 0] < self.odd, 2.0, sizes)
        logits = logits + sizes[:, None] * _normal(contexts, self.seed)
        logits = logits / (self.temperature if self.temperature is not None else temperature)
        if self.top_p < 1:
            shares = np.exp(_log_softmax(logits))
            ordered = np.sort(shares, axis=1)[:, ::-1]
            kept = (np.cumsum(ordered, axis=1) - ordered < self.top_p).sum(axis=1)
            logits = np.where(shares >= np.take_along_axis(ordered, kept[:, None] - 1, axis=1), logits, -np.inf)
        return _log_softmax(logits)


def contexts(ids: Sequence[int]) -> Array:
    """What stands before each of ``ids``, as one number."""
    made, so_far = [], 1
    for token in ids:
        made.append(so_far)
        so_far = (so_far * 6364136223846793005 + int(token) + 1442695040888963407) & _MASK
    return np.array(made, dtype=np.uint64)


def sampled(log_probs: Array, behind: Array) -> Array:
    """One word behind each context: always the same one."""
    draws = _uniform(behind, 3)[:, :1]
    return np.minimum((np.cumsum(np.exp(log_probs), axis=1) < draws).sum(axis=1), LANES - 1)


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _uniform(contexts: Array, kind: int) -> Array:
    """A number from 0 to 1 for each context and word (splitmix64)."""
    with np.errstate(over="ignore"):
        lanes = np.arange(1, LANES + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state = contexts[:, None] + lanes + np.uint64(kind) * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
        state ^= state >> np.uint64(31)
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53


def _normal(contexts: Array, kind: int) -> Array:
    pair = _uniform(contexts, 2 * kind + 11), _uniform(contexts, 2 * kind + 12)
    return np.sqrt(-2 * np.log(pair[0])) * np.cos(2 * np.pi * pair[1])
