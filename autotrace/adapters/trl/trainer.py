"""TRL: what its list cannot name or compute.

- The user's tools, methods of environments and reward functions have no name (``user_functions``).
- The reward of a row is the weighted sum of what its functions said.
- Which tokenizer decodes, and which MLflow or W&B run the trainer's own logger has open.

Read in the wheels of TRL 0.26 to 1.16. What is not as expected is left alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from autotrace.adapters.engine_requests import follow
from autotrace.adapters.trainers import end_tokens, publish_runs
from autotrace.adapters.trl import user_functions
from autotrace.patch import adapting
from autotrace.record import statements
from autotrace.record.backlog import backlog
from autotrace.record.context import RetainingCall
from autotrace.record.fields import ABSENT
from autotrace.record.follower import Follower
from autotrace.record.formulas import value_of
from autotrace.spool.records import Fact

BATCH = "trl.trainer.grpo_trainer.GRPOTrainer._generate_and_score_completions"
SCORES = "trl.experimental.async_grpo.async_rollout_worker._AsyncRolloutLoop._score_group"
_PARTS = value_of("self._logs.rewards.*[i - n * (self.accelerator.num_processes - self.accelerator.process_index)]")


def install() -> None:
    """Register the hooks on the modules below. Called once, right after ``trl`` was imported."""
    follow(BATCH, _Batch())
    follow(SCORES, _Scores())
    adapting.when_imported("trl.trainer.grpo_trainer", user_functions.watch)


class _Batch(Follower):
    """What the trainer knows around a batch of rollouts."""

    def __init__(self) -> None:
        self._published = False

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        trainer = arguments.get("self")
        if self._published or trainer is None:
            return
        self._published = True
        _publish_tokenizer(getattr(trainer, "processing_class", None))
        args = getattr(trainer, "args", None)
        loggers = getattr(args, "report_to", None) or ()
        publish_runs(loggers, None, getattr(args, "run_name", None))

    def holds(self, call: RetainingCall, result: Any) -> bool:
        trainer = (call.arguments or {}).get("self")
        if trainer is None or call.rows is None:
            return False
        weights = _weights(trainer)
        at = time.monotonic_ns()
        count = len(call.rows.calls)
        for number, row in enumerate(call.rows.calls):
            parts = None if row is None else _PARTS.read({"self": trainer, "i": number, "n": count})
            if row is None or type(parts) is not dict or not parts:
                continue
            parts = {name: shortest(part) for name, part in parts.items() if type(part) is float}
            total = weighted(list(parts.values()), weights)
            if total is not None:
                backlog.put(Fact(row.trace.id, None, "reward", total, at))
            if len(parts) > 1:
                backlog.put(Fact(row.trace.id, None, "reward_extra_info", parts, at))
        return False


class _Scores(Follower):
    """What the asynchronous worker gave the rollouts of a group (1.16, which names them)."""

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        call.arguments = {"group": arguments.get("group")}

    def holds(self, call: RetainingCall, result: Any) -> bool:
        group = (call.arguments or {}).get("group")
        at, first = time.monotonic_ns(), 0
        for sequences in getattr(group, "completions_sequences", None) or ():
            name = getattr(sequences[0], "rollout_id", None) if sequences else None
            if isinstance(name, str) and first < len(
                result
            ):  # one sample for each sequence, all with the same advantage
                sample = result[first]
                facts = {"advantage": sample.advantage, "reward": sample.metrics.get("reward")}
                parts = {key[8:]: value for key, value in sample.metrics.items() if key.startswith("rewards/")}
                for fact, value in {**facts, **({"reward_extra_info": parts} if len(parts) > 1 else {})}.items():
                    backlog.put(Fact(b"", {"of": name}, fact, value, at))
            first += len(sequences)
        return False


def shortest(value: float) -> float:
    """A float32 as people write it: 0.1, not 0.10000000149011612."""
    return float(f"{value:.7g}")


def weighted(parts: list[Any], weights: list[float]) -> float | None:
    """The reward as the trainer adds it up: a function that gave a row none does not count; None where none gave any,
    or where there is not one weight for each."""
    pairs = [(part, weight) for part, weight in zip(parts, weights, strict=False) if not math.isnan(part)]
    if len(parts) != len(weights) or not pairs:
        return None
    return shortest(sum(part * weight for part, weight in pairs))


def _weights(trainer: Any) -> list[float]:
    weights = getattr(trainer, "reward_weights", None)
    if weights is None or getattr(weights, "device", ABSENT) is ABSENT or weights.device.type != "cpu":
        return []
    return [float(weight) for weight in weights.tolist()]


def _publish_tokenizer(processing: Any) -> None:
    tokenizer = getattr(processing, "tokenizer", processing)
    path = getattr(tokenizer, "name_or_path", None)
    if isinstance(path, str) and path:
        about = {
            "class": type(tokenizer).__name__,
            "processor": tokenizer is not processing,
            "end_tokens": end_tokens(tokenizer),
        }
        statements.bind("tokenizer", {"path": path, "source": path, "trust_remote_code": False, **about})
