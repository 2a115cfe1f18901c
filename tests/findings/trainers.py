"""veRL's own trainer functions behind the rollouts of a scenario. Only the workers that would hold weights are played.
Imported by ``program`` alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from played_trainer import Batch, shifted, trainer_of

from tests.findings.engine import Engine
from tests.findings.policy import LANES, contexts
from tests.findings.scenarios import Rollout, Training


class Workers:
    """The worker group whose policy is trained."""

    def __init__(self, engine: Engine, config: Any, store: Any) -> None:
        self.engine, self.store = engine, store
        self.temperature = float(config.actor_rollout_ref.rollout.temperature)
        self.training: Training = engine.scenario.training

    def rollout_of(self, response: Any) -> Rollout | None:
        """Whose response it is: it says so."""
        number = re.search(r"ollout (\d+)", self.engine.tokenizer.decode(response))
        return self.engine.numbered.get(int(number[1])) if number else None

    def is_planted(self, response: Any) -> bool:
        rollout = self.rollout_of(response)
        return rollout is not None and rollout.planted

    def compute_log_prob(self, batch: Any) -> Any:
        """The trainer's forward pass: log-probabilities and entropy of every token."""
        from verl.utils.tensordict_utils import get_tensordict

        if isinstance(batch, Batch):  # V1: by key, into the store
            for key in batch.keys:
                row = self.store.fields[key]
                prompt, response = row["prompts"].tolist(), row["responses"].tolist()
                old, entropy = self._own(prompt, response)
                row["log_probs"], row["entropy"] = shifted(len(prompt), old), shifted(len(prompt), entropy)
            return batch
        width, rows = batch["responses"].shape[1], []
        for ids, mask in zip(batch["input_ids"].unbind(), batch["attention_mask"].unbind(), strict=True):
            prompt = int(mask[:-width].sum())  # rows come without padding
            rows.append([shifted(prompt, own) for own in self._own(ids[:prompt].tolist(), ids[prompt:].tolist())])
        nested = {
            name: torch.nested.as_nested_tensor(list(column), layout=torch.jagged)
            for name, column in zip(("log_probs", "entropy"), zip(*rows, strict=True), strict=True)
        }
        return get_tensordict(nested, non_tensor_dict={"metrics": {"mfu": 0.0}})

    def update_actor(self, batch: Any) -> Any:
        """Update nothing."""
        from verl.utils.tensordict_utils import get_tensordict

        return get_tensordict({}, non_tensor_dict={"metrics": {"actor/mfu": 0.0, "mfu": 0.0}})

    def _own(self, prompt: list[int], response: list[int]) -> tuple[Any, Any]:
        rollout = self.rollout_of(response) or self.engine.anybody
        behind = contexts(prompt + response)[len(prompt) :]
        places = np.arange(len(prompt), len(prompt) + len(response))
        of_words = self.training.trainer(rollout).log_probs(behind, places, self.temperature)
        known = self.engine.words
        words = [
            known.get((rollout.number, int(before), token), token % LANES)
            for before, token in zip(behind, response, strict=True)
        ]
        old = torch.tensor(of_words[np.arange(len(words)), words], dtype=torch.float32)
        entropy = torch.tensor(-(np.exp(of_words) * of_words).sum(axis=1), dtype=torch.float32)
        if rollout.planted:
            if self.training.shifts:
                old = torch.roll(old, 1)
            if self.training.invalid:
                old[len(old) // 2] = float("nan")
        return old, entropy


def classic(config: Any, engine: Engine, batch: Any, uids: list[str], step: int) -> None:
    """One batch through the classic trainer's functions, as ``RayPPOTrainer.fit`` calls them."""
    from verl.trainer.ppo import ray_trainer
    from verl.trainer.ppo.metric_utils import compute_data_metrics
    from verl.trainer.ppo.rollout_corr_helper import apply_bypass_mode, compute_rollout_correction_and_add_to_batch
    from verl.utils.debug.metrics import calculate_debug_metrics

    training: Training = engine.scenario.training
    workers = Workers(engine, config, None)
    trainer = trainer_of(ray_trainer.RayPPOTrainer, config, workers, step)
    batch.non_tensor_batch["uid"] = np.array(uids, dtype=object)
    metrics: dict[str, Any] = {}
    correction = config.algorithm.rollout_correction
    if correction.bypass_mode:
        policy_loss = config.actor_rollout_ref.actor.policy_loss
        apply_bypass_mode(batch=batch, rollout_corr_config=correction, policy_loss_config=policy_loss)
    else:
        computed, _ = trainer._compute_old_log_prob(batch)
        computed.batch.pop("entropys")
        batch = batch.union(computed)
        metrics |= calculate_debug_metrics(batch)
    lengths = batch.batch["attention_mask"][:, -batch.batch["responses"].shape[1] :].sum(dim=-1).tolist()
    planted = [workers.is_planted(row[:length]) for row, length in zip(batch.batch["responses"], lengths, strict=True)]
    scores = batch.batch["rm_scores"].clone()
    for row, length, is_planted in zip(scores, lengths, planted, strict=True):
        if is_planted:
            row[length - 1] = training.score(row[length - 1].item())
    batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = scores
    if not correction.bypass_mode:
        batch, added = compute_rollout_correction_and_add_to_batch(batch, correction)
        metrics |= added
    rollout = config.actor_rollout_ref.rollout
    batch = ray_trainer.compute_advantage(
        batch, adv_estimator=config.algorithm.adv_estimator, num_repeat=rollout.n, config=config.algorithm
    )
    for rows in training.updates(planted):
        trainer._update_actor(batch.select_idxs(np.array(rows)))
    metrics |= compute_data_metrics(batch=batch, use_critic=False)
    log(metrics, step)


def v1(config: Any, engine: Engine, store: Any, step: int) -> None:
    """One batch through the V1 trainer's methods, as ``PPOTrainer.step`` calls them."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.metric_utils import compute_data_metrics
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    training: Training = engine.scenario.training
    workers = Workers(engine, config, store)
    keys = sorted(key for key in store.fields if key.startswith(f"{step}-"))
    planted = [workers.is_planted(store.fields[key]["responses"]) for key in keys]
    for key, is_planted in zip(keys, planted, strict=True):
        scores = store.fields[key]["rm_scores"]
        if is_planted:
            scores[-1] = training.score(scores[-1].item())
    padding = [f"pad{step}x{number}_0_0" for number in range(training.padding)]
    for pad in padding:
        store.fields[pad] = store.fields[keys[0]].clone()
        store.fields[pad]["response_mask"] = store.fields[pad]["response_mask"] * 0
    tags: list[dict[str, Any]] = [{} for _ in keys] + [{"is_padding": True} for _ in padding]
    batch, metrics = Batch("train", [*keys, *padding], tags), {}
    trainer = trainer_of(PPOTrainer, config, workers, step)
    trainer._compute_old_log_prob(batch, metrics=metrics)
    trainer._compute_advantage(Batch("train", [*keys, *padding], tags), metrics=metrics)
    for rows in training.updates(planted):
        chosen = [keys[row] for row in rows]
        trainer._update_actor(Batch("train", [*chosen, *padding], [{} for _ in chosen] + tags[len(keys) :]), metrics={})
    fields = ["prompts", "responses", "response_mask", "rm_scores", "advantages", "returns"]
    data = store.get(keys, "train", fields)
    data = data.to_padded_tensor()
    data["token_level_scores"] = data["token_level_rewards"] = data["rm_scores"]
    for name in ("prompt", "response"):
        data[f"{name}_length"] = torch.tensor([float(len(store.fields[key][f"{name}s"])) for key in keys])
    log({**metrics, **compute_data_metrics(batch=DataProto(batch=data), use_critic=False)}, step)


def log(metrics: dict[str, Any], step: int) -> None:
    """Log the step as the trainers do."""
    from verl.utils.tracking import Tracking

    Tracking(project_name="p", experiment_name="e", default_backend=[], config={}).log(data=metrics, step=step)
