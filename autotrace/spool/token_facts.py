"""Pack a trainer's values for the tokens of a response: the summary of each response, and columns of some responses.

Log-probabilities are natural logarithms. *Rollout* values come from the engine at sampling. *Old* values come from the
trainer before the update, with the same weights as far as the trainer knows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

TOKEN_FACTS = "token_facts"
"""Name of the fact that holds the summary of a trajectory."""
SHOWN = ("mismatch_mean", "mismatch_max", "entropy")
"""Names of summary numbers that are also facts, so that people can filter."""
SUMMARY = "summary"
"""Key of the packed ``NUMBERS``; the other keys are ``COLUMNS``."""
NUMBERS = (
    "tokens", "mismatch_mean", "mismatch_max", "mismatch_at", "log_ratio_mean", "k3_mean", "probs_diff_mean",
    "probs_diff_max", "old_log_prob_mean", "rollout_log_prob_mean", "entropy", "ref_kl_mean", "is_weight_mean",
    "is_weight_max", "rejected", "not_finite", "clipped",
)  # fmt: skip
"""Names of the numbers over the tokens that the model generated and the trainer may learn from.

The trainer's response mask before rejection selects the tokens:

- ``tokens``: number of tokens; ``rejected``: number that rejection sampling took out of the loss; ``not_finite``:
  number with a log-probability that is not a finite number
- ``mismatch_mean``, ``mismatch_max``: mean and maximum of abs(old - rollout) log-probability; ``mismatch_at``: index in
  the response of the token with the maximum
- ``log_ratio_mean``: mean of old - rollout (veRL's ``rollout_corr/kl`` is the negative over all tokens of a step);
  ``k3_mean``: mean of exp(old - rollout) - (old - rollout) - 1
- ``probs_diff_mean``, ``probs_diff_max``: the same for probabilities, as in ``training/rollout_probs_diff_*``
- ``old_log_prob_mean``, ``rollout_log_prob_mean``: perplexity is exp of the negative
- ``entropy``: mean; ``ref_kl_mean``: mean of old - reference
- ``is_weight_mean``, ``is_weight_max``: importance weights as the trainer uses the weights; ``clipped``: number of
  remaining tokens whose weight the trainer cut

Later releases add names at the end."""
WHOLE = frozenset({"tokens", "mismatch_at", "rejected", "not_finite", "clipped"})
"""Names of the numbers that are counts."""
COLUMNS = ("old_log_probs", "rollout_log_probs", "entropy", "ref_log_prob", "rollout_is_weights", "advantages")
"""Names of float16 columns with a value for each token of the response, tools included; veRL's names."""
MASK = "loss_mask"
"""Name of a column of bytes: 1 where the trainer takes the loss."""

_NUMBER = struct.Struct("<f")
_LEAST = 16
"""Count of numbers that every release packs."""


def pack_summary(values: Sequence[float]) -> bytes:
    """Pack the numbers in the order of ``NUMBERS``; NaN means unknown."""
    return struct.pack(f"<{len(NUMBERS)}f", *values)


def summary(packed: Any) -> dict[str, Any]:
    """Read the numbers of ``pack_summary`` by name, without unknown numbers; empty for any other value."""
    if not isinstance(packed, bytes) or len(packed) < _LEAST * _NUMBER.size:
        return {}
    values = (value for (value,) in _NUMBER.iter_unpack(packed[: len(packed) // _NUMBER.size * _NUMBER.size]))
    return {
        name: int(value) if name in WHOLE else float(f"{value:.7g}")
        for name, value in zip(NUMBERS, values, strict=False)
        if math.isfinite(value) and (name not in WHOLE or abs(value) < 1 << 53)
    }


def columns(value: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Unpack the columns among ``value`` (``TokenFacts.value``) into lists."""
    read: dict[str, list[Any]] = {}
    for name in COLUMNS:
        packed = value.get(name)
        if isinstance(packed, bytes) and packed:
            count = len(packed) // 2
            read[name] = list(struct.unpack(f"<{count}e", packed[: 2 * count]))
    mask = value.get(MASK)
    if isinstance(mask, bytes) and mask:
        read[MASK] = list(mask)
    return read


LONG, GAP = 64, 8
"""Limits: the model's tokens from which a response has quarters; the fewest foreign tokens between two turns."""


def along(value: Mapping[str, Any]) -> dict[str, list[float]]:
    """Compute the mean abs(old - rollout) along the response, from the columns among ``value``.

    ``by_turn`` has a mean for each turn (if the response has several); ``by_length`` has a mean for each quarter of the
    model's tokens (if the model generated at least ``LONG``).
    """
    read = columns({name: value.get(name) for name in ("old_log_probs", "rollout_log_probs", MASK)})
    old, rollout = read.get("old_log_probs"), read.get("rollout_log_probs")
    if not old or not rollout:
        return {}
    mask = read.get(MASK) or [1] * len(old)
    turns: list[list[float]] = []
    last = -GAP - 1
    for at, (one, other, is_own) in enumerate(zip(old, rollout, mask, strict=False)):
        if is_own and math.isfinite(distance := abs(one - other)):
            if at - last > GAP:
                turns.append([])
            turns[-1].append(distance)
            last = at
    own = [distance for turn in turns for distance in turn]
    made = {"by_turn": [_mean(turn) for turn in turns]} if len(turns) > 1 else {}
    if len(own) >= LONG:
        bounds = [len(own) * quarter // 4 for quarter in range(5)]
        made["by_length"] = [_mean(own[first:last]) for first, last in pairwise(bounds)]
    return made


def _mean(values: Sequence[float]) -> float:
    return float(f"{sum(values) / len(values):.4g}")
