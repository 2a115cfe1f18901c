"""veRL's metrics of the engine's log-probabilities against the trainer's, as sums over all tokens looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

SAFE = 20.0
"""As veRL, ratios are taken of log-ratios within this bound where they are squared."""


@dataclass
class Totals:
    """Of all tokens and rows that were looked at; veRL's metrics are made of them."""

    tokens: int = 0
    diff_sum: float = 0.0
    diff_squares: float = 0.0
    diff_max: float = 0.0
    log_ratio_sum: float = 0.0
    k3_sum: float = 0.0
    chi2_sum: float = 0.0
    entropy_sum: float | None = None
    rollout: bool = False
    """The engine's log-probabilities were there."""
    probs: list[float] = field(default_factory=lambda: [0.0] * 5)
    """Mean of the trainer's and of the engine's probabilities, and the sums of squares and products around them."""
    sequences: list[tuple[float, float, float]] = field(default_factory=list)
    """Of each row: mean of old and of rollout log-probabilities, sum of their differences."""

    def add_probs(self, count: int, means: Sequence[float], squares: Sequence[float]) -> None:
        """Join the moments of ``count`` more tokens; call it before ``tokens`` counts them."""
        mean_x, mean_y, xx, yy, xy = self.probs
        both = self.tokens + count
        dx, dy, weight = means[0] - mean_x, means[1] - mean_y, self.tokens * count / both
        self.probs = [
            mean_x + dx * count / both, mean_y + dy * count / both, xx + squares[0] + dx * dx * weight,
            yy + squares[1] + dy * dy * weight, xy + squares[2] + dx * dy * weight,
        ]  # fmt: skip

    def metrics(self) -> dict[str, float]:
        """Under veRL's names, by its definitions, except that rows without a token do not count (veRL takes the rows
        that a batch is padded with into the means over rows)."""
        made: dict[str, float] = {}
        if self.entropy_sum is not None and self.tokens:
            made["actor/entropy"] = self.entropy_sum / self.tokens
        if not self.tokens:
            return made
        old = [-row[0] for row in self.sequences]
        made["rollout_corr/training_ppl"] = _mean([_exp(value) for value in old])
        made["rollout_corr/training_log_ppl"] = _mean(old)
        return {**made, **self._against_rollout()} if self.rollout else made

    def _against_rollout(self) -> dict[str, float]:
        n, rows = self.tokens, self.sequences
        mean = self.diff_sum / n
        spread = max(0.0, self.diff_squares - n * mean * mean)
        _, _, xx, yy, xy = self.probs
        differences = [rollout - old for old, rollout, _ in rows]
        return {
            "training/rollout_probs_diff_mean": mean,
            "training/rollout_probs_diff_max": self.diff_max,
            "training/rollout_probs_diff_std": math.sqrt(spread / (n - 1)) if n > 1 else math.nan,
            "training/rollout_actor_probs_pearson_corr": xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else math.nan,
            "rollout_corr/kl": -self.log_ratio_sum / n,
            "rollout_corr/k3_kl": self.k3_sum / n,
            "rollout_corr/chi2_token": self.chi2_sum / n - 1,
            "rollout_corr/chi2_seq": _mean([math.exp(2 * min(SAFE, max(-SAFE, total))) for _, _, total in rows]) - 1,
            "rollout_corr/rollout_ppl": _mean([_exp(-rollout) for _, rollout, _ in rows]),
            "rollout_corr/rollout_log_ppl": _mean([-rollout for _, rollout, _ in rows]),
            "rollout_corr/log_ppl_diff": _mean(differences),
            "rollout_corr/log_ppl_abs_diff": _mean([abs(value) for value in differences]),
            "rollout_corr/log_ppl_diff_max": max(differences),
            "rollout_corr/log_ppl_diff_min": min(differences),
            "rollout_corr/ppl_ratio": _mean([_exp(value) for value in differences]),
        }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
