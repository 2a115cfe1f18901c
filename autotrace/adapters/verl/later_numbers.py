"""What the trainer computes after its log-probabilities were measured, added to what was measured of each row."""

from __future__ import annotations

import math
from typing import Any

from autotrace.adapters.verl import token_numbers
from autotrace.adapters.verl.token_numbers import PER_ROW, Measured, packed
from autotrace.spool.token_facts import MASK


def add_later(measured: Measured, old: Any, mask: Any, reference: Any = None, weights: Any = None) -> None:
    """What the trainer computes after ``measure``: log-probabilities of the reference model, importance weights, and a
    mask that leaves out rejected tokens; None for what it does not."""
    columns = {"ref_log_prob": reference, "rollout_is_weights": weights}
    for first in range(0, len(mask), step := max(1, token_numbers.CELLS // max(1, mask.shape[1]))):
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
            numbers[PER_ROW["rejected"]] = numbers[PER_ROW["tokens"]] - kept
            for name in values.keys() & PER_ROW.keys():
                numbers[PER_ROW[name]] = values[name][row - first] if kept else math.nan
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
