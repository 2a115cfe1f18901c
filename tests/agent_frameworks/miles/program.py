"""A step of each of Miles' two rollout functions against a server that stands in for SGLang's router, and what its
trainer is given. SGLang itself is a stand-in: of it only types are used here."""

# ruff: noqa: E402 - what the imports need is put into place first

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
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


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What the rollouts import and do not use for what they are asked here: any name of it is a class."""

    NAMES = ("sglang", "sglang_router", "wandb")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        own = name.partition(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if own else None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__.update(__path__=[], __version__="0.3.0", __getattr__=self.member)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass

    @staticmethod
    def member(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"model_fields": {}})


sys.meta_path.insert(0, Absent())

from miles.ray.rollout.train_data_conversion import convert_samples_to_train_data
from miles.rollout import sglang_rollout
from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput, RolloutFnConstructorInput, RolloutFnTrainInput
from miles.rollout.inference_rollout.inference_rollout_common import InferenceRolloutFn
from miles.utils import dumper_utils, http_utils
from miles.utils.types import Sample

from tests.agent_frameworks import scripted
from tests.agent_frameworks.router import TOKENIZER, Data, Router, take

ROLLOUTS = 3


async def generate(input: GenerateFnInput) -> GenerateFnOutput:
    """A user's: the model asks for a sum, is told it, and answers."""
    args, sample = input.args, input.sample
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    sample.tokens = TOKENIZER.encode(sample.prompt, add_special_tokens=False)
    sample.loss_mask, sample.rollout_log_probs = [], []
    for _ in range(2):
        asked = {"input_ids": list(sample.tokens), "sampling_params": input.sampling_params, "return_logprob": True}
        output = await http_utils.post(url, asked)
        said = [item[1] for item in output["meta_info"]["output_token_logprobs"]]
        take(sample, said, output["text"], 1)
        numbers = scripted.called(output["text"])
        if numbers is not None:
            text = f"<|user|>result: {sum(numbers)}<|end|><|assistant|>"
            take(sample, TOKENIZER.encode(text, add_special_tokens=False), text, 0)
    sample.status = Sample.Status.COMPLETED
    return GenerateFnOutput(samples=sample)


class Args(Namespace):
    """What is not said is not set."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def arguments(port: int, **more: Any) -> Args:
    """Of a run with the router at ``port``."""
    folder = tempfile.mkdtemp()
    TOKENIZER.save_pretrained(folder)
    common: dict[str, Any] = dict(
        hf_checkpoint=folder, sglang_router_ip="127.0.0.1", sglang_router_port=port,
        sglang_server_concurrency=8, rollout_num_gpus=1, rollout_num_gpus_per_engine=1, eval_num_gpus=0,
        rollout_temperature=1.0, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=64,
        rollout_skip_special_tokens=False, sglang_dp_size=1, rollout_global_dataset=True, reward_key="score",
        rollout_batch_size=2, over_sampling_batch_size=2, n_samples_per_prompt=ROLLOUTS, group_rm=False,
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True,
        normalize_advantages=False, use_dynamic_global_batch_size=False,
    )  # fmt: skip
    dumper_utils.configure_sglang = nothing
    return Args(**common, **more)


def router() -> int:
    """The port of the server that stands in for SGLang's router."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def newer(args: Args, data: Data, step: int) -> Any:
    """What the newer rollout function generates in ``step``."""
    rollout = InferenceRolloutFn(RolloutFnConstructorInput(args=args, data_source=data))

    async def generated() -> Any:
        http_utils.init_http_client(args)
        return await rollout(RolloutFnTrainInput(rollout_id=step))

    return asyncio.run(generated()).samples


def main() -> None:
    """Two steps, the second with rewards of whole groups; prints what is trained on."""
    here = "tests.agent_frameworks.miles.program.generate"
    score = "tests.agent_frameworks.router.score"
    args = arguments(router(), custom_generate_function_path=here, custom_rm_path=score)
    http_utils.init_http_client(args)
    data = Data(Sample, ROLLOUTS)
    told(args, 0, sglang_rollout.generate_rollout(args, 0, data).samples)
    args.group_rm = True
    told(args, 1, newer(args, data, 1))


async def nothing(args: Namespace) -> None:
    """SGLang's dumps of tensors are off."""


def told(args: Namespace, step: int, groups: list[list[Any]]) -> None:
    """Print what is trained on. A rollout may have several samples."""
    several = [one if isinstance(one, list) else [one] for group in groups for one in group]
    samples = [sample for one in several for sample in one]
    given = convert_samples_to_train_data(args, samples, {}, None, None)
    for sample, advantage in zip(samples, given["rewards"], strict=True):
        row = {"step": step, "uid": sample.group_index, "rollout_n": sample.index % ROLLOUTS, "tokens": sample.tokens,
               "mask": sample.loss_mask, "reward": sample.reward["score"], "advantage": float(advantage)}  # fmt: skip
        print(json.dumps(row))


if __name__ == "__main__":
    main()
