"""The trainer's log-probabilities against the engine's, as numbers: of each row of a batch and of the whole batch.

Works on CPU tensors of rows x response tokens, a few rows at a time, so that what is computed on the way stays in the
processor's cache; takes a bounded time, whatever the size of the batch: rows are taken evenly over the batch, and those
for which there was no time are left out.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotrace.spool.token_facts import MASK, NUMBERS

CELLS = 1 << 18
"""Numbers of one tensor that are looked at together."""
WORST = RANDOM = 32
"""Rows of which columns are kept: those with the largest difference, and some of the others."""
MOST_BYTES = 16 << 20
"""Of columns that are kept of one batch, before what is added later."""
SAFE = 20.0
"""As veRL, ratios are taken of log-ratios within this bound where they are squared."""

_PER_ROW = {name: index for index, name in enumerate(NUMBERS)}
_random = random.Random()
"""Not the host's, whose choices stay the same."""


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


@dataclass
class Measured:
    """What ``measure`` found out about a batch."""

    rows: dict[int, list[float]] = field(default_factory=dict)
    """Row -> numbers in the order of ``NUMBERS``, NaN where not known; rows without a token have none."""
    totals: Totals = field(default_factory=Totals)
    left: int = 0
    """Rows for which there was no time."""
    columns: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Row -> columns, packed as ``spool.token_facts`` has them."""
    without: int = 0
    """Rows of which columns were wanted, and not kept because they are too long together."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Row -> tokens of its response up to the last one of the model."""


def measure(
    old: Any, rollout: Any, mask: Any, entropy: Any = None, *, seconds: float = math.inf, every: bool = False,
    some: bool = True,
) -> Measured:  # fmt: skip
    """Look at a batch: tensors of one shape on the CPU; ``rollout`` and ``entropy`` may be None.

    ``seconds``: after which no more rows are begun. Columns are kept of ``every`` row, of ``some``, or of none.
    """
    count, width = old.shape
    measured = Measured()
    if not count or not width:
        return measured
    measured.totals.rollout = rollout is not None
    parts = min(count, max(1, -(-count * width // CELLS)))
    end = time.monotonic() + seconds
    for part in range(parts):
        rows = slice(part, None, parts)
        if part and time.monotonic() > end:
            measured.left += len(range(count)[rows])
            continue
        tensors = [None if one is None else one[rows] for one in (old, rollout, entropy)]
        _chunk(measured, range(count)[rows], mask[rows], *tensors)
    chosen = list(measured.rows) if every else _chosen(measured.rows) if some else []
    held = 0
    for row in chosen:
        if held > MOST_BYTES:
            measured.without += 1
            continue
        length = measured.lengths[row]
        named = {"old_log_probs": old, "rollout_log_probs": rollout, "entropy": entropy}
        measured.columns[row] = {name: packed(one[row, :length]) for name, one in named.items() if one is not None}
        held += sum(map(len, measured.columns[row].values()))
    return measured


def add_later(measured: Measured, old: Any, mask: Any, reference: Any = None, weights: Any = None) -> None:
    """What the trainer computes after ``measure``: log-probabilities of the reference model, importance weights, and a
    mask that leaves out rejected tokens; None for what it does not."""
    columns = {"ref_log_prob": reference, "rollout_is_weights": weights}
    for first in range(0, len(mask), step := max(1, CELLS // max(1, mask.shape[1]))):
        rows = slice(first, first + step)
        taken = mask[rows] != 0
        counts = taken.sum(dim=1)
        n, blank = counts.clamp(min=1).float(), ~taken
        named = {"kept": counts}
        if reference is not None:
            named["ref_kl_mean"] = (old[rows] - reference[rows]).float().masked_fill(blank, 0.0).sum(dim=1) / n
        if weights is not None:
            given = weights[rows].detach().float().masked_fill(blank, 0.0)
            named["is_weight_mean"], named["is_weight_max"] = given.sum(dim=1) / n, given.amax(dim=1)
        values = {name: column.tolist() for name, column in named.items()}
        for row in range(first, first + len(taken)):
            numbers = measured.rows.get(row)
            if numbers is None:
                continue
            kept = values["kept"][row - first]
            numbers[_PER_ROW["rejected"]] = numbers[_PER_ROW["tokens"]] - kept
            for name in values.keys() & _PER_ROW.keys():
                numbers[_PER_ROW[name]] = values[name][row - first] if kept else math.nan
    for row, kept_columns in measured.columns.items():
        length = measured.lengths[row]
        kept_columns |= {name: packed(one[row, :length]) for name, one in columns.items() if one is not None}
        kept_columns[MASK] = (mask[row, :length] != 0).numpy().astype("u1").tobytes()


def add_advantages(measured: Measured, advantages: Any, mask: Any) -> None:
    """Columns of those that differ over the tokens."""
    for row, columns in measured.columns.items():
        length = measured.lengths[row]
        values = advantages[row, :length]
        taken = values[mask[row, :length] != 0]
        if len(taken) and bool((taken != taken[0]).any()):
            columns["advantages"] = packed(values)


def packed(values: Any) -> bytes:
    """A row as float16."""
    data: bytes = values.detach().half().contiguous().numpy().astype("<f2").tobytes()
    return data


def _chosen(rows: Mapping[int, list[float]]) -> list[int]:
    """The worst rows, and some of the others."""
    at = _PER_ROW["mismatch_max"]
    ordered = sorted(rows, key=lambda row: -_rank(rows[row][at]))
    others = ordered[WORST:]
    return ordered[:WORST] + _random.sample(others, min(RANDOM, len(others)))


def _rank(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _chunk(measured: Measured, numbers: Sequence[int], mask: Any, old: Any, rollout: Any, entropy: Any) -> None:
    torch: Any = sys.modules["torch"]
    taken = mask != 0
    used = taken.any(dim=0).nonzero()
    if not len(used):
        return
    width = int(used[-1]) + 1
    taken = taken[:, :width]
    counts = taken.sum(dim=1)
    lengths = (taken * torch.arange(1, width + 1)).amax(dim=1).tolist()
    blank, n = ~taken, counts.clamp(min=1).float()

    def cut(values: Any) -> Any:
        return values[:, :width].detach().masked_fill(blank, 0.0)

    table: dict[str, Any] = {"tokens": counts}
    given = cut(old)
    trainer = given.float()
    totals = measured.totals
    table["old_log_prob_mean"] = trainer.sum(dim=1) / n
    odd = ~trainer.isfinite()
    if rollout is not None:
        engine = cut(rollout)
        odd |= ~engine.isfinite()
        probs = given.exp().float(), engine.exp().float()  # as exact as veRL takes them: the trainer's may be bfloat16
        _compare(table, totals, (trainer, engine.float()), probs, taken, n)
    table["not_finite"] = odd.sum(dim=1)
    if entropy is not None:
        sums = cut(entropy).float().sum(dim=1)
        table["entropy"] = sums / n
        totals.entropy_sum = (totals.entropy_sum or 0.0) + float(sums.double().sum())
    values = {name: column.tolist() for name, column in table.items()}
    log_ratios = values.get("log_ratio_mean", [0.0] * len(numbers))
    rollouts = values.get("rollout_log_prob_mean", [0.0] * len(numbers))
    for index, row in enumerate(numbers):
        tokens = values["tokens"][index]
        if tokens:
            measured.rows[row] = [values[name][index] if name in values else math.nan for name in NUMBERS]
            measured.lengths[row] = lengths[index]
            totals.sequences.append((values["old_log_prob_mean"][index], rollouts[index], log_ratios[index] * tokens))
    totals.tokens += int(counts.sum())


def _compare(
    table: dict[str, Any], totals: Totals, logs: tuple[Any, Any], both: tuple[Any, Any], taken: Any, n: Any
) -> None:
    """``logs``: the trainer's and the engine's log-probabilities, 0 where ``taken`` is not; ``both``: what they are the
    logarithms of."""
    (old, rollout), (probs, engine) = logs, both
    log_ratio = old - rollout
    distance = log_ratio.abs()
    largest = distance.max(dim=1)
    table["mismatch_mean"], table["mismatch_max"] = distance.sum(dim=1) / n, largest.values
    table["mismatch_at"] = largest.indices
    sums = log_ratio.sum(dim=1)
    table["log_ratio_mean"], table["rollout_log_prob_mean"] = sums / n, rollout.sum(dim=1) / n
    ratio = log_ratio.expm1()
    k3 = (ratio - log_ratio).sum(dim=1)
    table["k3_mean"] = k3 / n
    diff = (probs - engine).abs()
    diffs = diff.sum(dim=1)
    table["probs_diff_mean"], table["probs_diff_max"] = diffs / n, diff.amax(dim=1)
    count = int(taken.sum())
    totals.diff_sum += float(diffs.double().sum())
    totals.diff_squares += float(diff.square_().sum(dim=1).double().sum())
    totals.diff_max = max(totals.diff_max, float(table["probs_diff_max"].max()))
    totals.log_ratio_sum += float(sums.double().sum())
    totals.k3_sum += float(k3.double().sum())
    squared = ratio.add_(1).clamp_(max=math.exp(SAFE)).square_()
    totals.chi2_sum += float((squared * taken).sum(dim=1).double().sum())
    means = [float((one * taken).sum(dim=1).double().sum()) / count for one in (probs, engine)]
    x, y = ((one - mean) * taken for one, mean in zip((probs, engine), means, strict=True))
    squares = [float((a * b).sum(dim=1).double().sum()) for a, b in ((x, x), (y, y), (x, y))]
    totals.add_probs(count, means, squares)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
