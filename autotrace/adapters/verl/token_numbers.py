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

from autotrace.adapters.verl.token_totals import SAFE, Totals
from autotrace.spool.token_facts import NUMBERS

CELLS = 1 << 18
"""Numbers of one tensor that are looked at together."""
WORST = RANDOM = 32
"""Rows of which columns are kept: those with the largest difference, and some of the others."""
MOST_BYTES = 16 << 20
"""Of columns that are kept of one batch, before what is added later."""

PER_ROW = {name: index for index, name in enumerate(NUMBERS)}
"""Where each stands in a row's list."""
_random = random.Random()
"""Not the host's, whose choices stay the same."""


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


def packed(values: Any) -> bytes:
    """A row as float16."""
    data: bytes = values.detach().half().contiguous().numpy().astype("<f2").tobytes()
    return data


def _chosen(rows: Mapping[int, list[float]]) -> list[int]:
    """The worst rows, and some of the others."""
    at = PER_ROW["mismatch_max"]
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
