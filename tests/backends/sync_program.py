"""``python -m verl.trainer.main_ppo_sync`` of veRL 0.8.0 up to its configuration, then what a Ray actor gets of it: the
trainer's class, by value.

Run under ``autotrace-run``. The engine and the weights are not there: facts are said about a batch made up here.
"""

from __future__ import annotations

import pickle
import runpy
import sys
from typing import Any
from unittest.mock import MagicMock

import cloudpickle

sys.argv = ["main_ppo_sync.py", "--cfg", "job"]
made: dict[str, Any] = runpy.run_module("verl.trainer.main_ppo_sync", run_name="__main__", alter_sys=True)
written = cloudpickle.dumps(made["PPOTrainer"])
cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()  # as in a process that has not seen the class
trainer = pickle.loads(written)
assert trainer is not made["PPOTrainer"], "a class of the program travels by value"

from autotrace.record import statements  # noqa: E402

said: list[tuple[str, Any, Any]] = []
statements.fact = lambda name, value, key: said.append((name, value, key))  # type: ignore[assignment]

batch = MagicMock(keys=["u-1_0_0", "u-1_1_0"], tags=[{}, {"is_padding": True}])
stand_in = MagicMock(global_steps=7)
stand_in.actor_rollout_wg.update_actor.return_value = {"metrics": {"mfu": 0.5}}
stand_in.config.get.return_value = None
assert trainer._update_actor(stand_in, batch, metrics={}) is batch
assert said == [("trained_in_step", 7, {"uid": "u-1", "session_id": "0"})], said

import torch  # noqa: E402
from verl.protocol import DataProto  # noqa: E402

said.clear()
columns = {"token_level_rewards": torch.tensor([[0.0, 1.0], [0.0, 0.0]]), "response_mask": torch.ones(2, 2)}
advantages = trainer._compute_advantage.__globals__["compute_advantage_for_multi_trajectories"]
uids = {"uid": __import__("numpy").array(["u-1", "u-1"], dtype=object)}
data = DataProto.from_dict(tensors=columns, non_tensors=uids)
found = advantages(data, batch_keys=["u-1_0_0", "u-1_1_0"], adv_estimator="grpo", num_repeat=2)
assert [(name, key["session_id"]) for name, _, key in said] == [("advantage", "0"), ("advantage", "1")]
assert [value for _, value, _ in said] == found.batch["advantages"][:, 0].double().tolist()
print("facts of the trainer:", len(said))
