"""Two steps of slime's rollout against a server that stands in for SGLang's router, and what its trainer is given."""

# ruff: noqa: E402 - what the imports need is put into place first

from __future__ import annotations

import json
import sys
import tempfile
import threading
import types
from argparse import Namespace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch


def stand_ins() -> None:
    """What the rollout manager imports and does not use for what it is asked here."""
    for name, members in {
        "wandb": (),
        "sglang": (),
        "sglang.srt": (),
        "sglang.srt.constants": ("GPU_MEMORY_TYPE_CUDA_GRAPH", "GPU_MEMORY_TYPE_KV_CACHE", "GPU_MEMORY_TYPE_WEIGHTS"),
        "slime.backends.sglang_utils.sglang_engine": ("SGLangEngine",),
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(dict.fromkeys(members))
        sys.modules[name] = module


stand_ins()

from slime.ray.rollout import RolloutManager
from slime.rollout import sglang_rollout
from slime.utils import http_utils
from slime.utils.ppo_utils import get_grpo_returns
from slime.utils.types import Sample

from tests.agent_frameworks import scripted
from tests.agent_frameworks.router import TOKENIZER, Data, Router, take

ROLLOUTS = 3


async def generate(args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """A user's: the model asks for a sum, is told it, and answers."""
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    sample.tokens = TOKENIZER.encode(sample.prompt, add_special_tokens=False)
    sample.loss_mask, sample.rollout_log_probs = [], []
    for _ in range(2):
        asked = {"input_ids": list(sample.tokens), "sampling_params": sampling_params, "return_logprob": True}
        output = await http_utils.post(url, asked)
        said = [item[1] for item in output["meta_info"]["output_token_logprobs"]]
        take(sample, said, output["text"], 1)
        numbers = scripted.called(output["text"])
        if numbers is not None:
            text = f"<|user|>result: {sum(numbers)}<|end|><|assistant|>"
            take(sample, TOKENIZER.encode(text, add_special_tokens=False), text, 0)
    sample.status = Sample.Status.COMPLETED
    return sample


def main() -> None:
    """Two steps, the second with rewards of whole groups; prints what is trained on."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tempfile.mkdtemp()
    TOKENIZER.save_pretrained(folder)
    here = f"{__name__}." if __name__ != "__main__" else "tests.agent_frameworks.slime.program."
    args = Namespace(
        hf_checkpoint=folder, sglang_router_ip="127.0.0.1", sglang_router_port=server.server_address[1],
        sglang_server_concurrency=8, rollout_num_engines=1, rollout_num_gpus=1, rollout_num_gpus_per_engine=1,
        rollout_temperature=1.0, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=64, rollout_stop=None,
        rollout_stop_token_ids=None, rollout_skip_special_tokens=False, sglang_dp_size=1, partial_rollout=False,
        mask_offpolicy_in_partial_rollout=False, ci_test=False, group_rm=False, rollout_global_dataset=True,
        custom_generate_function_path=here + "generate", reward_key="score",
        custom_rm_path="tests.agent_frameworks.router.score",
        dynamic_sampling_filter_path=None, rollout_batch_size=2, over_sampling_batch_size=2,
        n_samples_per_prompt=ROLLOUTS, rollout_sample_filter_path=None, rollout_all_samples_process_path=None,
        use_distributed_post=False, use_rollout_routing_replay=False, advantage_estimator="grpo",
        rewards_normalization=True, grpo_std_normalization=True, normalize_advantages=False,
    )  # fmt: skip
    http_utils.init_http_client(args)
    data = Data(Sample, ROLLOUTS)
    for step in range(2):
        args.group_rm = step == 1
        samples = [one for group in sglang_rollout.generate_rollout(args, step, data).samples for one in group]
        for sample, advantage in zip(samples, advantages(args, samples), strict=True):
            told = {"step": step, "uid": sample.group_index, "rollout_n": sample.index % ROLLOUTS,
                    "tokens": sample.tokens, "mask": sample.loss_mask,
                    "reward": sample.reward["score"], "advantage": advantage}  # fmt: skip
            print(json.dumps(told))


def advantages(args: Namespace, samples: list[Sample]) -> list[float]:
    """What the manager gives the trainer, and what that makes of it: the same for each token."""
    manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
    manager.args, manager.custom_reward_post_process_func = args, None
    manager.custom_convert_samples_to_train_data_func = None
    given = manager._convert_samples_to_train_data(samples)
    rows = [torch.zeros(length) for length in given["response_lengths"]]
    return [float(row[-1]) for row in get_grpo_returns(torch.tensor(given["rewards"]), rows)]


if __name__ == "__main__":
    main()
