"""veRL's classic path (``DataProto``): advantages and the step a trajectory was trained in.

Its rows have no name but their group's ``uid`` and what was answered, so a fact is keyed by the digest of the response
without its padding: a list can say neither a digest nor which part of a tensor is padding. Only tensors that are on the
CPU are read: nothing here waits for a GPU (what was left out is counted).

Read in the wheels of veRL 0.7.1, 0.8.0 and 0.9.1. What is not as expected is left alone.
"""

from __future__ import annotations

import weakref
from typing import Any

from autotrace.adapters.observe import Given
from autotrace.adapters.rows_of_tensors import SKIPPED, digests, is_here, response_values
from autotrace.adapters.verl import token_facts
from autotrace.record import faults, statements


def advantages(result: Any, given: Given) -> None:
    """``compute_advantage`` returned. On the V1 path, which calls it too, rows have no responses."""
    keys = _rows(result)
    if not keys:
        return
    values = response_values(result.batch["advantages"], result.batch["response_mask"])
    for key, value in zip(keys, values, strict=False):
        statements.fact("advantage", value, key)
    for key in keys:  # the trainer's reward, for rollouts that no reward loop scored before
        if "score" in key:
            statements.fact("token_level_score", key["score"], key)
    token_facts.record(result.batch, keys, [key["uid"] for key in keys], given.get("config"))


def trained(result: Any, given: Given) -> None:
    """``RayPPOTrainer._update_actor`` returned."""
    step = int(given["self"].global_steps)
    for key in _rows(given["batch"]):
        statements.fact("trained_in_step", step, key)


_digested: tuple[Any, list[bytes]] | None = None
"""The responses that were digested last (weakly) and their digests: a batch is looked at twice in a step."""


def _rows(data: Any) -> list[dict[str, Any]]:
    """``uid``, digest of the response without its padding, and ``score`` if there is one, of each row; empty where they
    cannot be read."""
    names = set(data.batch.keys())
    if not {"responses", "attention_mask"} <= names or "uid" not in data.non_tensor_batch:
        return []
    responses, attention = data.batch["responses"], data.batch["attention_mask"]
    if not (is_here(responses) and is_here(attention)):
        faults.count(SKIPPED, len(responses))
        return []
    pairs = zip(data.non_tensor_batch["uid"], _digests(responses, attention), strict=False)
    keys: list[dict[str, Any]] = [{"uid": str(uid), "digest": digest} for uid, digest in pairs]
    if "token_level_scores" in names and is_here(data.batch["token_level_scores"]):
        for key, score in zip(keys, data.batch["token_level_scores"].sum(dim=-1).tolist(), strict=False):
            key["score"] = score
    return keys


def _digests(responses: Any, attention: Any) -> list[bytes]:
    """As ``spool.records.Tokens.digest`` has it, of each row's response."""
    global _digested
    if _digested is not None and _digested[0]() is responses:
        return _digested[1]
    lengths = [int(length) for length in attention[:, -responses.shape[1] :].sum(dim=-1).tolist()]
    _digested = weakref.ref(responses), digests(responses, lengths)
    return _digested[1]
