"""What stands around the rollouts of ``program.py``: batches, workers, advantages, dump and update, on both paths."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import in_process
import releases

Row = dict[str, Any]
"""What the trainer knows of a trajectory: ``uid``, ``sample``, ``reward`` (veRL's dump), ``advantage``, and either
``session`` (V1) or ``response``, the text that veRL dumped (V0)."""


class Weights:
    """The worker group whose policy would be updated."""

    def update_actor(self, batch: Any) -> Any:
        """Update nothing."""
        from verl.utils.tensordict_utils import get_tensordict

        return get_tensordict({}, non_tensor_dict={"metrics": {"actor/mfu": 0.0, "mfu": 0.0}})


def trainer_of(cls: type, config: Any, tokenizer: Any) -> Any:
    """A trainer without what its constructor would start."""
    plain: Any = type(cls.__name__, (cls,), {})
    plain.__abstractmethods__ = frozenset()
    trainer = object.__new__(plain)
    trainer.config, trainer.tokenizer, trainer.actor_rollout_wg = config, tokenizer, Weights()
    trainer.use_legacy_worker_impl = "disable"  # 0.7.1
    return trainer


class V0:
    """``RayPPOTrainer``: the batch is a ``DataProto``, cut into as many chunks as there are workers."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        from verl.trainer.ppo import ray_trainer
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer

        if importlib.util.find_spec("flash_attn") is None:  # releases before 0.9 remove padding with it, on GPUs
            ray_trainer.left_right_2_no_padding = lambda batch: batch
        self.config = config
        self.trainer = trainer_of(RayPPOTrainer, config, tokenizer)

    def worker(self, server: Any) -> Any:
        """One of the agent-loop workers."""
        return releases.worker(self.config, server)

    async def step(self, agents: Sequence[Any], prompts: list[dict[str, Any]], n: int, step: int) -> list[Row]:
        """Roll out, score, and go on as the trainer's ``fit`` does."""
        import numpy as np
        from verl.protocol import DataProto
        from verl.trainer.ppo import ray_trainer

        columns = in_process.rows(prompts, n)
        columns["priority"] = np.arange(len(prompts) * n)
        whole = DataProto(batch=None, non_tensor_batch=columns, meta_info={"global_steps": step, "validate": False})
        chunks = zip(agents, whole.chunk(len(agents)), strict=True)
        batch = DataProto.concat(await asyncio.gather(*(agent.generate_sequences(chunk) for agent, chunk in chunks)))
        batch.non_tensor_batch |= {name: columns[name] for name in ("uid", "index", "reward_model")}
        batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
        algorithm = self.config.algorithm
        batch = ray_trainer.compute_advantage(batch, adv_estimator="grpo", num_repeat=n, config=algorithm)
        self.trainer.global_steps = step
        self.trainer._update_actor(batch)
        dumped = self._dump(batch, step)
        mask = batch.batch["response_mask"].bool()
        advantages = [row[kept][0].item() for row, kept in zip(batch.batch["advantages"], mask, strict=True)]
        return [
            {
                "uid": str(columns["uid"][place]),
                "sample": int(columns["index"][place]),
                "reward": dumped[place]["score"],
                "response": dumped[place]["output"],
                "advantage": advantage,
                "step": step,
            }
            for place, advantage in enumerate(advantages)
        ]

    def _dump(self, batch: Any, step: int) -> list[dict[str, Any]]:
        folder = self.config.trainer.rollout_data_dir
        if hasattr(self.trainer, "_init_dump_executor"):
            self.trainer._init_dump_executor()
        self.trainer._log_rollout_data(batch, {}, {}, folder)
        if hasattr(self.trainer, "_shutdown_dump_executor"):
            self.trainer._shutdown_dump_executor()
        return [json.loads(line) for line in Path(folder, f"{step}.jsonl").read_text().splitlines()]

    def close(self) -> None:
        """Nothing to let go of."""


class V1:
    """``PPOTrainer`` of 0.9: rollouts put what they made into TransferQueue, a service of Ray actors."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        import transfer_queue as tq
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer

        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the paths of Ray's sockets must be short
        self._start_ray()
        config.transfer_queue.backend.SimpleStorage.num_data_storage_units = 1
        config.transfer_queue.enable = True
        tq.init(config.transfer_queue)
        self.config, self.tq = config, tq
        self.trainer = trainer_of(PPOTrainer, config, tokenizer)

    def _start_ray(self) -> None:
        """Ray gives up after 30 seconds, which a busy machine may need."""
        import ray

        settings = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 80 << 20}
        for last in (False, False, True):
            try:
                ray.init(address="local", _temp_dir=self.folder, **settings)
                return
            except Exception:
                ray.shutdown()
                if last:
                    raise

    def worker(self, server: Any) -> Any:
        """One of the agent-loop workers."""
        return in_process.worker_v1(self.config, server)

    async def step(self, agents: Sequence[Any], prompts: list[dict[str, Any]], n: int, step: int) -> list[Row]:
        """Roll out, and go on with what is in the queue then as ``PPOTrainer.step`` and ``fit`` do."""
        share = -(-len(prompts) // len(agents))
        parts = [prompts[first : first + share] for first in range(0, len(prompts), share)]
        await asyncio.gather(
            *(in_process.rollout_v1(agent, part, step) for agent, part in zip(agents, parts, strict=True))
        )
        keys = sorted(f"{prompt['uid']}_{session}_0" for prompt in prompts for session in range(n))
        return await asyncio.to_thread(self._train, keys, {prompt["uid"]: prompt["index"] for prompt in prompts}, step)

    def _train(self, keys: list[str], samples: dict[str, int], step: int) -> list[Row]:
        known = self.tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["rollout_log_probs"])
        known["old_log_probs"] = known.pop("rollout_log_probs")  # by a policy that has not changed
        batch = self.tq.kv_batch_put(keys=keys, partition_id="train", fields=known)
        batch.tags = [{} for _ in batch.keys]
        self.trainer.global_steps = step
        batch = self.trainer._compute_advantage(batch, metrics={})
        batch.tags = [{} for _ in batch.keys]
        self.trainer._update_actor(batch, metrics={})
        folder = self.config.trainer.rollout_data_dir
        self.trainer._init_dump_executor()
        self.trainer._log_rollout_data(batch, {}, folder)
        self.trainer._shutdown_dump_executor()
        dumped = [json.loads(line) for line in Path(folder, f"{step}.jsonl").read_text().splitlines()]
        scores = {row["uid"]: row["score"] for row in dumped}
        used = self.tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages"])["advantages"]
        rows = []
        for key, values in zip(batch.keys, used.unbind(), strict=True):
            uid, session, _ = key.rsplit("_", 2)
            told = {"uid": uid, "session": session, "sample": samples[uid], "step": step}
            rows.append({**told, "reward": scores[key], "advantage": values.tolist()[0]})
        return rows

    def close(self) -> None:
        """End TransferQueue and Ray."""
        import ray

        self.tq.close()
        ray.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)
