"""Compare the trainer's log-probabilities with the engine's, as numbers of each row and of the whole batch.

The module works on CPU tensors of rows x response tokens, a few rows at a time, so that intermediate results stay in
the processor's cache. The time is bounded, whatever the size of the batch: rows are taken evenly over the batch, and
rows without time left are left out.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotrace.config.originals import time
from autotrace.spool.token_facts import MASK, NUMBERS

CELLS = 1 << 18
"""Limits the numbers of a tensor that are processed together."""
WORST = RANDOM = 32
"""Rows whose columns are kept: the rows with the largest difference, and some other rows."""
MOST_BYTES = 16 << 20
"""Limits the bytes of columns kept of a batch, before later additions."""

PER_ROW = {name: index for index, name in enumerate(NUMBERS)}
"""Maps each name to the index in a row's list."""
_random = random.Random()
"""Random numbers independent of the host, whose choices stay the same."""


@dataclass
class Measured:
    """Holds the results of ``measure`` for a batch."""

    rows: dict[int, list[float]] = field(default_factory=dict)
    """Maps a row to numbers in the order of ``NUMBERS``, NaN for unknown; rows without a token are missing."""
    left: int = 0
    """Rows without time left."""
    columns: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Maps a row to columns, packed as in ``spool.token_facts``."""
    without: int = 0
    """Rows whose wanted columns were not kept, because columns are too long together."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Maps a row to the tokens of the response up to the model's last token."""

    def log_perplexity(self) -> float | None:
        """Return the mean over the rows that have tokens; None without such a row.

        veRL's ``rollout_corr/training_log_ppl`` also counts the rows with which a batch is padded.
        """
        means = [-numbers[PER_ROW["old_log_prob_mean"]] for numbers in self.rows.values()]
        return math.fsum(means) / len(means) if means else None


def measure(
    old: Any, rollout: Any, mask: Any, entropy: Any = None, *, seconds: float = math.inf, every: bool = False,
    some: bool = True,
) -> Measured:  # fmt: skip
    """Measure a batch: tensors of the same shape on the CPU; ``rollout`` and ``entropy`` may be None.

    After ``seconds`` no more rows are begun. Columns are kept of ``every`` row, of ``some``, or of none.
    """
    count, width = old.shape
    measured = Measured()
    if not count or not width:
        return measured
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
    """Pack a row as float16."""
    data: bytes = values.detach().half().contiguous().numpy().astype("<f2").tobytes()
    return data


def _chosen(rows: Mapping[int, list[float]]) -> list[int]:
    """Choose the worst rows, and some other rows."""
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
    table["old_log_prob_mean"] = trainer.sum(dim=1) / n
    odd = ~trainer.isfinite()
    if rollout is not None:
        engine = cut(rollout)
        odd |= ~engine.isfinite()
        probs = given.exp().float(), engine.exp().float()  # as exact as veRL takes them: the trainer's may be bfloat16
        _compare(table, (trainer, engine.float()), probs, n)
    table["not_finite"] = odd.sum(dim=1)
    if entropy is not None:
        table["entropy"] = cut(entropy).float().sum(dim=1) / n
    values = {name: column.tolist() for name, column in table.items()}
    for index, row in enumerate(numbers):
        if values["tokens"][index]:
            measured.rows[row] = [values[name][index] if name in values else math.nan for name in NUMBERS]
            measured.lengths[row] = lengths[index]


def _compare(table: dict[str, Any], logs: tuple[Any, Any], both: tuple[Any, Any], n: Any) -> None:
    """Compare ``logs``, the trainer's and the engine's log-probabilities, 0 where the model wrote no token. ``both``
    holds the probabilities."""
    (old, rollout), (probs, engine) = logs, both
    log_ratio = old - rollout
    distance = log_ratio.abs()
    largest = distance.max(dim=1)
    table["mismatch_mean"], table["mismatch_max"] = distance.sum(dim=1) / n, largest.values
    table["mismatch_at"] = largest.indices
    table["log_ratio_mean"], table["rollout_log_prob_mean"] = log_ratio.sum(dim=1) / n, rollout.sum(dim=1) / n
    table["k3_mean"] = (log_ratio.expm1() - log_ratio).sum(dim=1) / n
    diff = (probs - engine).abs()
    table["probs_diff_mean"], table["probs_diff_max"] = diff.sum(dim=1) / n, diff.amax(dim=1)


def add_later(
    measured: Measured, old: Any, mask: Any, reference: Any = None, weights: Any = None, limit: float | None = None,
) -> None:  # fmt: skip
    """Add the trainer's later values: log-probabilities of the reference model, importance weights, the final mask.

    The mask leaves out rejected tokens; None stands for a value that the trainer does not compute. A weight at
    ``limit`` was cut to ``limit``; a weight of 0 was outside two limits.
    """
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
            if limit is not None:
                named["clipped"] = (taken & ((given >= limit) | (given == 0))).sum(dim=1)
        values = {name: column.tolist() for name, column in named.items()}
        for row in range(first, first + len(taken)):
            numbers = measured.rows.get(row)
            if numbers is None:
                continue
            kept = values["kept"][row - first]
            numbers[PER_ROW["rejected"]] = numbers[PER_ROW["tokens"]] - kept
            for name in values.keys() & PER_ROW.keys():
                numbers[PER_ROW[name]] = values[name][row - first] if kept else math.nan
    for row, kept_columns in measured.columns.items():
        length = measured.lengths[row]
        kept_columns |= {name: packed(one[row, :length]) for name, one in columns.items() if one is not None}
        kept_columns[MASK] = (mask[row, :length] != 0).numpy().astype("u1").tobytes()


def add_advantages(measured: Measured, advantages: Any, mask: Any) -> None:
    """Add columns of advantages that differ over the tokens."""
    for row, columns in measured.columns.items():
        length = measured.lengths[row]
        values = advantages[row, :length]
        taken = values[mask[row, :length] != 0]
        if len(taken) and bool((taken != taken[0]).any()):
            columns["advantages"] = packed(values)
