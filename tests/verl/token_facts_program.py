"""The classic trainer's functions of any release since 0.6.1 on a batch made by hand; what it saw goes to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import release_shim

release_shim.install()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from verl.protocol import DataProto  # noqa: E402
from verl.trainer.ppo import ray_trainer  # noqa: E402
from verl.utils.debug.metrics import calculate_debug_metrics  # noqa: E402

ROWS, PROMPT, WIDTH = 6, 4, 20
made = torch.Generator().manual_seed(1)
lengths = torch.tensor([20, 7, 12, 3, 20, 9])
mask = (torch.arange(WIDTH) < lengths.unsqueeze(1)).long()
old = -torch.rand((ROWS, WIDTH), generator=made)
columns = {
    "responses": torch.randint(1, 99, (ROWS, WIDTH), generator=made),
    "attention_mask": torch.cat([torch.ones(ROWS, PROMPT).long(), mask], dim=1),
    "response_mask": mask,
    "old_log_probs": old,
    "rollout_log_probs": old + 0.1 * torch.randn((ROWS, WIDTH), generator=made),
    "token_level_rewards": torch.nn.functional.one_hot(lengths - 1, WIDTH) * torch.arange(ROWS).unsqueeze(1) / 4,
}
columns["token_level_scores"] = columns["token_level_rewards"]
uids = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)
batch = DataProto(batch=TensorDict(columns, batch_size=ROWS), non_tensor_batch={"uid": uids})
metrics = calculate_debug_metrics(batch)
batch = ray_trainer.compute_advantage(batch, adv_estimator="grpo", num_repeat=3)
Path(sys.argv[1]).write_text(json.dumps({"metrics": metrics, "lengths": lengths.tolist()}))
