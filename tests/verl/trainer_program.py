"""veRL's own trainer code behind its own rollouts, in one process: ``trainer_program.py MODE OUT.json``.

``classic``: ``compute_advantage`` and ``RayPPOTrainer._update_actor`` on the batch that the workers returned. ``v1``:
``PPOTrainer._compute_advantage``, ``_update_actor`` and ``ReplayBuffer`` over a store that stands in for TransferQueue.
Only the workers that would update weights are played. ``OUT.json`` gets what the trainer used.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES / "verl_loop"), str(HERE)]
import in_process  # noqa: E402
from played_trainer import Batch, Store, shifted, trainer_of  # noqa: E402

MODE, OUT = sys.argv[1:3]
N, STEP = 4, 3
ANSWERS = {"uid-a": ["#### 7", "#### 7", "#### 9", "no idea"], "uid-b": ["#### 1"] * 4}
"""What each rollout of a group says: two of the first group agree word for word, all of the second."""
QUESTIONS = {"uid-a": "How many are seven?", "uid-b": "How many is one?"}
PROMPTS = [
    {"question": QUESTIONS[uid], "answer": answer, "uid": uid, "index": index, "agent_name": "single_turn_agent"}
    for index, (uid, answer) in enumerate((("uid-a", "7"), ("uid-b", "1")))
]
_next = {QUESTIONS[uid]: itertools.cycle(answers) for uid, answers in ANSWERS.items()}


def script(conversation: str, turn: int) -> str:
    """The next answer to the question."""
    return next(next(answers) for question, answers in _next.items() if question in conversation)


STORE = Store()


def differing(rollout: Any, odd: bool) -> Any:
    """Log-probabilities of a policy that differs a little from the engine's, at one token of one row by 3."""
    import torch

    made = torch.Generator().manual_seed(len(rollout))
    noise = 0.02 * torch.randn(len(rollout), generator=made)
    if odd:
        noise[2] = -3.0
    return rollout + noise


class Workers:
    """The worker group whose policy would be updated."""

    def compute_log_prob(self, batch: Any) -> Any:
        """The trainer's forward pass: log-probabilities and entropy of every token."""
        import torch
        from verl.utils.tensordict_utils import get_tensordict

        if isinstance(batch, Batch):  # V1: by key, into the store
            for number, key in enumerate(batch.keys):
                row = STORE.fields[key]
                old = differing(row["rollout_log_probs"], number == 0)
                row["log_probs"] = shifted(len(row["prompts"]), old)
                row["entropy"] = shifted(len(row["prompts"]), old.abs() / 2)
            return batch
        mask, width = batch["attention_mask"], batch["responses"].shape[1]
        lengths = [(int(row[:-width].sum()), int(row[-width:].sum())) for row in mask]
        old = [
            differing(row[:length], number == 0)
            for number, (row, (_, length)) in enumerate(zip(batch["rollout_log_probs"], lengths, strict=True))
        ]
        rows = [shifted(prompt, one) for one, (prompt, _) in zip(old, lengths, strict=True)]
        entropies = [shifted(prompt, one.abs() / 2) for one, (prompt, _) in zip(old, lengths, strict=True)]
        nested = {
            name: torch.nested.as_nested_tensor(one, layout=torch.jagged)
            for name, one in (("log_probs", rows), ("entropy", entropies))
        }
        return get_tensordict(nested, non_tensor_dict={"metrics": {"mfu": 0.0}})

    def update_actor(self, batch: Any) -> Any:
        """Update nothing."""
        from verl.utils.tensordict_utils import get_tensordict

        return get_tensordict({}, non_tensor_dict={"metrics": {"actor/mfu": 0.0, "mfu": 0.0}})


async def classic(config: Any, server: Any) -> dict[str, Any]:
    """One batch through the classic trainer's functions."""
    import numpy as np
    from verl.trainer.ppo import ray_trainer
    from verl.trainer.ppo.core_algos import agg_loss
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from verl.utils.debug.metrics import calculate_debug_metrics

    batch = await in_process.rollout(in_process.worker(config, server), PROMPTS, N, STEP)
    batch.non_tensor_batch["uid"] = np.array([prompt["uid"] for prompt in PROMPTS for _ in range(N)], dtype=object)
    trainer = trainer_of(ray_trainer.RayPPOTrainer, config, Workers(), STEP)
    computed, _ = trainer._compute_old_log_prob(batch)
    entropy = computed.batch.pop("entropys")
    batch = batch.union(computed)
    metrics = calculate_debug_metrics(batch)
    metrics["actor/entropy"] = agg_loss(entropy, batch.batch["response_mask"], "token-mean").item()
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    batch, added = compute_rollout_correction_and_add_to_batch(batch, config.algorithm.rollout_correction)
    batch = ray_trainer.compute_advantage(batch, adv_estimator="grpo", num_repeat=N, config=config.algorithm)
    trainer._update_actor(batch)
    mask = batch.batch["response_mask"].bool()
    used = [row[kept][0].item() for row, kept in zip(batch.batch["advantages"], mask, strict=True)]
    scores = batch.batch["token_level_scores"].sum(-1).tolist()
    old = [row[kept].tolist() for row, kept in zip(batch.batch["old_log_probs"], mask, strict=True)]
    rows = list(zip(batch.non_tensor_batch["uid"], scores, used, strict=True))
    return {"rows": rows, "metrics": {**metrics, **added}, "old_log_probs": old}


async def v1(config: Any, server: Any) -> dict[str, Any]:
    """One batch through the V1 trainer's methods, then the groups that its replay buffer drops."""
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    await in_process.rollout_v1(in_process.worker_v1(config, server), PROMPTS, STEP)
    keys = sorted(STORE.fields)
    trainer = trainer_of(PPOTrainer, config, Workers(), STEP)
    pad = f"pad{'0' * 32}_0_0"
    STORE.fields[pad] = STORE.fields[keys[0]].clone()
    STORE.fields[pad]["response_mask"] = STORE.fields[pad]["response_mask"] * 0
    batch = Batch("train", [*keys, pad], [{} for _ in keys] + [{"is_padding": True}])
    metrics: dict[str, Any] = {}
    trainer._compute_old_log_prob(batch, metrics=metrics)
    trainer._compute_advantage(batch, metrics=metrics)
    used = dict(STORE.used)
    trained = [key for key in batch.keys if not key.startswith("uid-b")]
    trainer._update_actor(Batch("train", trained, [{"is_padding": key == pad} for key in trained]), metrics={})
    buffer = ReplayBuffer("sync", {}, None, "drop", {})
    tags = {key: {"status": "success"} for key in keys}
    buffer.partitions["train"].update(tags)
    reasons = (set(), {"uid-b"}, set(), {})
    buffer._evict_terminal_groups(STEP, "train", reasons)
    assert sorted(buffer.partitions["train"]) == [key for key in keys if key.startswith("uid-a")]
    scores = {key: STORE.fields[key]["rm_scores"].sum().item() for key in keys}
    old = [STORE.fields[key]["old_log_probs"].tolist() for key in keys]
    rows = [[key.split("_")[0], scores[key], used[key][0], key] for key in keys]
    return {"rows": rows, "metrics": metrics, "old_log_probs": old}


def log(metrics: dict[str, Any]) -> None:
    """Log the step as the trainers do."""
    from verl.utils.tracking import Tracking

    Tracking(project_name="p", experiment_name="e", default_backend=[], config={}).log(data=metrics, step=STEP)


async def main(folder: Path) -> None:
    """Run the mode and write down what the trainer used."""
    if MODE == "v1":
        STORE.install()
    tokenizer = in_process.make_model(folder)
    config = in_process.configuration(
        folder,
        [
            f"reward.custom_reward_function.path={EXAMPLES / 'verl_loop/reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={N}",
            "algorithm.adv_estimator=grpo",
        ],
    )
    server = in_process.ScriptedServer(tokenizer, script)
    result = await {"classic": classic, "v1": v1}[MODE](config, server)
    log(result["metrics"])
    Path(OUT).write_text(json.dumps(result))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as model:
        asyncio.run(main(Path(model)))
