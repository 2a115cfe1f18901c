"""Record the trainer's values of each token, beside the engine's.

The trainer compares both (``calculate_debug_metrics``) before the trainer rejects tokens. The values are measured
there, with the entropy, and recorded once the advantages are known, because each row then has a name. If the trainer
does not compare (older releases, no log-probabilities of the engine), the values are measured at that time. Only
tensors on the CPU are read.

No value comes from a single call, as a spec's values do: two calls' tensors are combined, in a bounded time.

Read in the wheels of veRL 0.6.1 to 0.9.1. Anything unexpected is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.adapters.trainers import Given, is_here
from autotrace.adapters.verl.token_numbers import Measured, add_advantages, add_later, measure
from autotrace.config.originals import time
from autotrace.patch import engine
from autotrace.record import faults, statements
from autotrace.record.fields import Path
from autotrace.spool.token_facts import SUMMARY, pack_summary

SKIPPED = "drop:token facts on a device"
LATE = "drop:token facts out of time"
LONG = "drop:token columns"
"""Counters: rows whose log-probabilities were on an accelerator; rows without time left; rows with numbers but without
columns, because columns are too long together."""
LOG_PERPLEXITY = "rollout_corr/training_log_ppl"
"""Name of the metric that is compared with the trainer's own (finding ``AT-METRICS-PADDED``)."""
SHARE = 0.01
"""Share of the time since the last step that this step's measurement may take ..."""
AT_FIRST, LEAST, MOST = 2.0, 0.05, 5.0
"""Seconds for the first step, and the bounds for any other."""


@dataclass
class _Batch:
    """Holds the batch between the trainer's forward pass and its advantages."""

    entropy: Any = None
    measured: Measured | None = None
    rows: list[str] | None = None
    """Names of the batch's rows: keys (V1), or groups."""


_batch = _Batch()
_totals: dict[str, float] = {}
"""Totals of the batches since the trainer logged a step; of several batches, the last."""
_last_at: float | None = None


def classic_computed(result: Any, given: Given) -> None:
    """Keep the entropy after ``RayPPOTrainer._compute_old_log_prob`` returned, the only place that has the entropy."""
    global _batch
    data = result[0] if isinstance(result, tuple) else result
    _batch = _Batch(entropy=data.batch["entropys"] if "entropys" in set(data.batch.keys()) else None)


def compared(_: Any, given: Given) -> None:
    """Measure both log-probabilities before ``calculate_debug_metrics``, with the mask as the agent made the mask."""
    global _batch
    data = given["data"]
    names = set(data.batch.keys())
    if not {"old_log_probs", "rollout_log_probs", "response_mask"} <= names:
        return
    entropy = data.batch["entropy"] if "entropy" in names else _batch.entropy
    uids = data.non_tensor_batch.get("uid")
    measured = _measured(data.batch["old_log_probs"], data.batch["rollout_log_probs"], _mask(data.batch), entropy)
    _batch = _Batch(measured=measured, rows=None if uids is None else [str(uid) for uid in uids])


def computed(result: Any, given: Given) -> None:
    """Name the rows after ``PPOTrainer._compute_old_log_prob`` (V1), which compares both inside."""
    if _batch.measured is not None:
        _batch.rows = [str(key) for key in given["batch"].keys]


def record(batch: Any, keys: Sequence[Mapping[str, Any] | None], rows: list[str], config: Any) -> None:
    """Record the values of each row, once the advantages are known. ``keys`` name the rows' owners, None for padding;
    ``rows``: as ``_Batch.rows``."""
    global _batch
    pending, _batch = _batch, _Batch()
    names = set(batch.keys())
    if "old_log_probs" not in names or engine.settings().token_facts == "off":
        return
    old, mask = batch["old_log_probs"], _mask(batch)
    measured = pending.measured if pending.rows == rows else None
    if measured is None:
        bypassed = _correction(config, "bypass_mode") is True  # the engine's log-probabilities are taken for its own
        rollout = batch["rollout_log_probs"] if "rollout_log_probs" in names and not bypassed else None
        measured = _measured(old, rollout, mask, pending.entropy)
    if measured is None:
        return
    later = {name: batch[name] for name in ("ref_log_prob", "rollout_is_weights") if name in names}
    later = {name: values for name, values in later.items() if _alike(values, mask) and is_here(values)}
    add_later(measured, old, mask, later.get("ref_log_prob"), later.get("rollout_is_weights"), _limit(config))
    if "advantages" in names and _alike(batch["advantages"], mask) and is_here(batch["advantages"]):
        add_advantages(measured, batch["advantages"], mask)
    for row, numbers in measured.rows.items():
        key = keys[row]
        if key is not None:
            statements.token_facts({SUMMARY: pack_summary(numbers), **measured.columns.get(row, {})}, key)


def take_totals() -> dict[str, float]:
    """Return veRL's ``LOG_PERPLEXITY`` over the rows measured since the last call, and the number of rows not
    measured."""
    global _totals
    totals, _totals = _totals, {}
    return totals


def _measured(old: Any, rollout: Any, mask: Any, entropy: Any) -> Measured | None:
    """Measure a batch; None, and counted, for tensors that are not on the CPU."""
    global _last_at, _totals
    settings = engine.settings()
    if settings.token_facts == "off" or not _alike(old, mask):
        return None
    if not (is_here(old) and is_here(mask) and (rollout is None or is_here(rollout))):
        faults.count(SKIPPED, len(old))
        return None
    rollout = rollout if _alike(rollout, mask) else None
    entropy = entropy if _alike(entropy, mask) and is_here(entropy) else None
    now = time.monotonic()
    seconds = AT_FIRST if _last_at is None else min(MOST, max(LEAST, SHARE * (now - _last_at)))
    columns = settings.content == "full"
    every = columns and settings.token_facts == "all"
    measured = measure(old, rollout, mask, entropy, seconds=seconds, every=every, some=columns)
    _last_at = now
    perplexity = measured.log_perplexity()
    _totals = {"left": measured.left, **({} if perplexity is None else {LOG_PERPLEXITY: perplexity})}
    if measured.without:
        faults.count(LONG, measured.without)
    if measured.left:
        faults.count(LATE, measured.left)
    return measured


def _mask(batch: Any) -> Any:
    return batch["response_mask"][:, -batch["old_log_probs"].shape[1] :]


def _alike(values: Any, mask: Any) -> bool:
    return values is not None and tuple(getattr(values, "shape", ())) == tuple(mask.shape) and len(mask.shape) == 2


def _limit(config: Any) -> float | None:
    """Return the limit of importance weights: the number, or the upper of ``LOWER_UPPER``. None if the trainer scales
    the weights afterwards."""
    limit = _correction(config, "rollout_is_threshold")
    if _correction(config, "rollout_is_batch_normalize") is True or not isinstance(limit, (int, float, str)):
        return None
    try:
        return float(str(limit).rpartition("_")[2])
    except ValueError:
        return None


def _correction(config: Any, name: str) -> Any:
    return Path(f"config.rollout_correction.{name}").read({"config": config})


METRICS = 2_000
"""Limits the metrics of one step."""


def logged(result: Any, given: Mapping[str, Any]) -> None:
    """Record the metrics after ``Tracking.log`` returned."""
    data, step = given.get("data"), given.get("step")
    if not isinstance(data, dict) or not isinstance(step, int) or isinstance(step, bool) or step < -1:
        return
    numbers: dict[str, float] = {}
    for name, value in dict.items(data):
        number = _number(value)
        if number is not None and type(name) is str and len(numbers) < METRICS:
            numbers[name] = number
    if numbers:
        statements.step_facts(step, "metrics", numbers)
    totals = take_totals()
    if totals:
        statements.step_facts(step, "token_facts", totals)


def _number(value: Any) -> float | None:
    """Convert Python's and numpy's numbers to float; None for anything else."""
    kind = type(value)
    if kind is float or (kind is int and abs(value) < 1 << 53):
        return float(value)
    if kind.__module__ == "numpy" and kind.__name__.startswith(("float", "int", "uint")):
        return float(value)
    return None
