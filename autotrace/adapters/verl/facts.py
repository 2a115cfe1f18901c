"""Record facts that only veRL's trainer knows about a trajectory: advantage, trained in step S, dropped.

A rollout on the V1 path (TransferQueue) is named by the key ``{uid}_{session}_{output}``, which a spec cannot take
apart. Rows of the classic path (``DataProto``) have no name except the group's ``uid`` and the answer, so the digest of
the response without padding identifies a fact. Values are read from the tensors that the trainer goes on with, over the
tokens of the response alone, if the tensors are on the CPU (other rows are counted). Two calls together tell why a
group was dropped. A path can express none of this.

Read in the wheels of veRL 0.7.1, 0.8.0 and 0.9.1. Anything unexpected is left alone.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any

from autotrace.adapters.trainers import SKIPPED, Given, digests, is_here, observe, response_values, watch
from autotrace.adapters.verl import token_facts
from autotrace.patch import adapting
from autotrace.record import faults, statements

FILTERED = "filtered: every reward of its group is the same"
STALE = "stale: {versions} weight versions old"
FAILED = "failed: a rollout of its group failed"
SURPLUS = "surplus: the batch was full"
PROGRAM = "verl.trainer.main_ppo_sync"
"""Names the trainer of 0.8.0, which is imported, or run as ``python -m``."""
ADVANTAGES = "compute_advantage_for_multi_trajectories"


def install() -> None:
    """Watch the functions of the trainers. Called once, right after ``verl`` was imported."""
    watch("verl.utils.debug.metrics", "calculate_debug_metrics", before=token_facts.compared)
    classic, buffer = "verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v1.replay_buffer"
    watch(classic, "compute_advantage", after=classic_advantages)
    watch(classic, "RayPPOTrainer._update_actor", after=classic_trained)
    watch(classic, "RayPPOTrainer._compute_old_log_prob", after=token_facts.classic_computed)
    watch("verl.trainer.ppo.v1.utils", ADVANTAGES, after=advantages)
    watch(PROGRAM, ADVANTAGES, after=advantages)
    for module in ("verl.trainer.ppo.v1.trainer_base", PROGRAM):
        watch(module, "PPOTrainer._update_actor", after=trained)
        watch(module, "PPOTrainer._compute_old_log_prob", after=token_facts.computed)
    watch(buffer, "ReplayBuffer._evict_terminal_groups", before=evicted)
    watch(buffer, "ReplayBuffer._clear_groups", before=cleared)
    adapting.when_run(PROGRAM, "PPOTrainer", _watch_program)


def _watch_program(trainer: type) -> None:
    """Watch the trainer of 0.8.0's ``python -m verl.trainer.main_ppo_sync``.

    Ray takes the trainer's class by value out of ``__main__``, and the replaced methods with the class.
    """
    observe(trainer, "_update_actor", after=trained)
    observe(trainer, "_compute_old_log_prob", after=token_facts.computed)
    observe(sys.modules[trainer.__module__], ADVANTAGES, after=advantages)


def advantages(result: Any, given: Given) -> None:
    """Record advantages after ``compute_advantage_for_multi_trajectories`` returned: a row per key."""
    keys = [_key(key) for key in given["batch_keys"]]
    values = response_values(result.batch["advantages"], result.batch["response_mask"])
    for key, value in zip(keys, values, strict=False):
        if key is not None:
            statements.fact("advantage", value, key)
    token_facts.record(result.batch, keys, [str(key) for key in given["batch_keys"]], given.get("config"))


def trained(result: Any, given: Given) -> None:
    """Record the batch that went into the policy, after ``PPOTrainer._update_actor`` returned."""
    batch, step = given["batch"], given["self"].global_steps
    tags = batch.tags or [{}] * len(batch.keys)
    keys = [key for key, tag in zip(batch.keys, tags, strict=False) if not tag.get("is_padding")]
    for session in _sessions(keys):
        statements.fact("trained_in_step", int(step), session)


def evicted(_: Any, given: Given) -> None:
    """Record groups that ``ReplayBuffer._evict_terminal_groups`` drops from training, and why (reasons may
    coincide)."""
    buffer, partition = given["self"], given["partition_id"]
    stale, filtered, failed = given["eviction_reasons"][:3]
    born = buffer.prompt_global_steps[partition]
    for uid in set(stale) | set(filtered) | set(failed):
        versions = given["global_steps"] - born.get(uid, given["global_steps"]) + 1
        reasons = {STALE.format(versions=versions): stale, FILTERED: filtered, FAILED: failed}
        _dropped(buffer, partition, {uid}, "; ".join(reason for reason, uids in reasons.items() if uid in uids))
        _evicted.add(uid)


_evicted: set[str] = set()
"""Groups whose eviction is recorded and which ``_clear_groups`` is about to remove."""


def cleared(_: Any, given: Given) -> None:
    """Record groups that ``ReplayBuffer._clear_groups`` removes without an eviction: more than the batch needed."""
    uids = set(given["uids"])
    surplus = uids - _evicted
    _evicted.difference_update(uids)
    if given["partition_id"] != "val":
        _dropped(given["self"], given["partition_id"], surplus, SURPLUS)


def _dropped(buffer: Any, partition: str, uids: set[str], reason: str) -> None:
    if not uids:
        return
    keys = [key for key in list(buffer.partitions[partition]) if key.split("_")[0] in uids]
    for session in _sessions(keys):
        statements.fact("dropped", reason, session)


def _key(key: str) -> dict[str, Any] | None:
    """Split ``{uid}_{session}_{output}``; None for the rows that veRL pads a batch with."""
    parts = str(key).rsplit("_", 2)
    if len(parts) != 3 or parts[0].startswith("pad"):
        return None
    return {"uid": parts[0], "session_id": parts[1], "output": parts[2]}


def _sessions(keys: Iterable[str]) -> list[dict[str, Any]]:
    sessions = {(key["uid"], key["session_id"]): None for key in map(_key, keys) if key is not None}
    return [{"uid": uid, "session_id": session} for uid, session in sessions]


def classic_advantages(result: Any, given: Given) -> None:
    """Record advantages after ``compute_advantage`` returned. On the V1 path, which also calls the function, rows have
    no responses."""
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


def classic_trained(result: Any, given: Given) -> None:
    """Record the trained rows after ``RayPPOTrainer._update_actor`` returned."""
    step = int(given["self"].global_steps)
    for key in _rows(given["batch"]):
        statements.fact("trained_in_step", step, key)


_digested: tuple[Any, list[bytes]] | None = None
"""Responses that were digested last (weakly) and the digests: a batch is read twice in a step."""


def _rows(data: Any) -> list[dict[str, Any]]:
    """Return ``uid``, digest of the response without padding, and ``score`` if known, of each row; empty if
    unreadable."""
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
    """Compute ``spool.records.Tokens.digest`` of each row's response."""
    global _digested
    if _digested is not None and _digested[0]() is responses:
        return _digested[1]
    lengths = [int(length) for length in attention[:, -responses.shape[1] :].sum(dim=-1).tolist()]
    _digested = weakref.ref(responses), digests(responses, lengths)
    return _digested[1]
