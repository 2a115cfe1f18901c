"""veRL's functions on the driver between the trainer's forward pass and its update, on a batch on the CPU, in rounds:
bare and with each setting of ``--token-facts``. Prints a line of JSON a call. See ``benchmarks/token_facts.py``."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import time
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo import ray_trainer
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.utils.debug import metrics as debug

from autotrace.adapters.verl import token_facts
from autotrace.patch import engine
from autotrace.record import flusher

N = 8
"""Rollouts of a prompt."""
PROMPT = 512
MODES = ("bare", "off", "some", "all")


def batch(rows: int, width: int, seed: int) -> DataProto:
    """As it is on the driver when the trainer's log-probabilities have come: from a tenth to all of ``width`` used."""
    made = torch.Generator().manual_seed(seed)
    lengths = torch.randint(width // 10, width + 1, (rows,), generator=made)
    mask = (torch.arange(width) < lengths.unsqueeze(1)).long()
    old = -torch.rand((rows, width), generator=made)
    rewards = torch.zeros((rows, width))
    rewards[torch.arange(rows), lengths - 1] = torch.randint(0, 2, (rows,), generator=made).float()
    attention = torch.cat([torch.ones(rows, PROMPT).long(), mask], dim=1)
    columns = {
        "prompts": torch.ones((rows, PROMPT)).long(),
        "responses": torch.randint(1, 50_000, (rows, width), generator=made),
        "attention_mask": attention,
        "response_mask": mask,
        "old_log_probs": old,
        "entropys": torch.rand((rows, width), generator=made),
        "rollout_log_probs": old + 0.02 * torch.randn((rows, width), generator=made),
        "token_level_scores": rewards,
        "token_level_rewards": rewards,
    }
    uids = np.repeat([f"u{seed}-{group}" for group in range(rows // N)], N).astype(object)
    return DataProto(batch=TensorDict(columns, batch_size=rows), non_tensor_batch={"uid": uids})


def step(data: DataProto, traced: bool) -> None:
    """What the trainer does with it."""
    compare: Any = debug.calculate_debug_metrics
    advantage: Any = ray_trainer.compute_advantage
    if not traced:
        compare, advantage = compare.__wrapped__, advantage.__wrapped__
    compare(data)
    data = advantage(data, adv_estimator="grpo", num_repeat=N)
    compute_data_metrics(batch=data, use_critic=False)


def main() -> None:
    """``rows width seconds rounds``: of a step that takes ``seconds``."""
    rows, width, rounds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    seconds = float(sys.argv[3])
    torch.set_num_threads(1)  # so that a thread's CPU time is all that a call took
    given = engine.settings()
    mode = "bare"
    engine.settings = lambda: dataclasses.replace(given, token_facts="off" if mode == "bare" else mode)  # type: ignore[assignment]
    for number in range(rounds + 1):
        made = batch(rows, width, number)
        for mode in random.sample(MODES, len(MODES)):
            columns = {**made.batch, "responses": made.batch["responses"].clone()}  # looked at anew
            data = DataProto(TensorDict(columns, batch_size=rows), dict(made.non_tensor_batch))
            token_facts._last_at = time.monotonic() - seconds
            process, clock, thread = time.process_time(), time.monotonic(), time.thread_time()
            step(data, mode != "bare")
            thread, clock = time.thread_time() - thread, time.monotonic() - clock
            flusher.flush()
            process = time.process_time() - process
            left = token_facts.take_totals().get("left")
            if number:  # the first round warms up
                print(json.dumps({"mode": mode, "thread": thread, "clock": clock, "process": process, "left": left}))


if __name__ == "__main__":
    main()
