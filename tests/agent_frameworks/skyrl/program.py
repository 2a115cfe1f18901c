"""A step of SkyRL's trainer without its workers: its generator with an environment and a tool of SkyRL-Gym, and its
computing of advantages. What would ask the inference servers answers by rule."""

# ruff: noqa: E402 - what the imports need is put into place first
from __future__ import annotations

import asyncio
import json
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]  # until Python 3.12 pydantic takes only this

import skyrl_gym
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.trainer import RayPPOTrainer
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.tools.core import ToolGroup, tool

from tests.agent_frameworks import scripted

ROLLOUTS = 3
TOKENIZER = scripted.tokenizer()


class Numbers(ToolGroup):
    def __init__(self) -> None:
        super().__init__("numbers")

    @tool
    def add(self, a: int, b: int) -> int:
        return a + b


class Sums(BaseTextEnv):
    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.label = (extras or {})["label"]
        self.init_tool_groups([Numbers()])

    def step(self, action: str) -> Any:
        numbers = scripted.called(action)
        told = [] if numbers is None else [f"result: {self._execute_tool('numbers', 'add', numbers)}"]
        observations = [{"role": "user", "content": text} for text in told]
        reward = 0.125 if numbers else float(f"It is {self.label}." in action)
        return {"observations": observations, "reward": reward, "done": numbers is None, "metadata": {}}


class Servers(RemoteInferenceClient):
    """Instead of servers: the first two rollouts of each prompt are right."""

    def __init__(self) -> None:
        pass

    async def generate(self, input_batch: Any, model: str | None = None) -> Any:
        await asyncio.sleep(0)
        text = TOKENIZER.decode(input_batch["prompt_token_ids"][0])
        right = not input_batch["session_ids"][0].endswith("_2")
        ids = TOKENIZER.encode(scripted.answer(text, right) + scripted.MARKS[-1], add_special_tokens=False)
        return {
            "responses": [scripted.answer(text, right)],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[scripted.LOGPROB] * len(ids)],
        }

    async def finish_session(self, session_id: str) -> None:
        pass


async def main() -> None:
    """Step 7 with two prompts, and what the trainer has of each rollout."""
    config = SkyRLTrainConfig()
    config.generator.max_turns = 3
    config.generator.n_samples_per_prompt = ROLLOUTS
    config.generator.sampling_params.logprobs = 0
    config.generator.max_input_length = 1000
    config.environment.skyrl_gym.max_env_workers = 2
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = 2
    config.trainer.algorithm.advantage_estimator = "grpo"
    skyrl_gym.register(id="sums", entry_point=Sums)
    generator = SkyRLGymGenerator(config.generator, config.environment.skyrl_gym, Servers(), TOKENIZER)
    prompts = [
        {"prompt": [{"role": "user", "content": f"What is 2 plus {b}?"}], "env_class": "sums", "uid": f"prompt-{b}",
         "env_extras": {"label": str(2 + b), "data_source": "sums", "extra_info": {"index": 40 + b}}}
        for b in (2, 3)
    ]  # fmt: skip
    batch, uids = prepare_generator_input(prompts, ROLLOUTS, None, "sums", "train", 7)
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg, trainer.tokenizer, trainer.all_metrics = config, TOKENIZER, {}
    trainer.global_step, trainer.trajectory_logger = 7, None
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    trainer.generator = generator
    output = await trainer.generate(batch)
    output, uids = trainer.postprocess_generator_output(output, uids)
    data = trainer.convert_to_training_input(output, uids)
    data["values"] = None  # no critic
    data = trainer.compute_advantages_and_returns(data)
    for number, uid in enumerate(uids):
        mask = data["response_mask"][number].bool()
        told = {
            "uid": uid,
            "rollout_n": number % ROLLOUTS,
            "prompt": output["prompt_token_ids"][number],
            "response": output["response_ids"][number],
            "mask": output["loss_masks"][number],
            "reward": float(sum(output["rewards"][number])),
            "advantage": float(data["advantages"][number][mask][0]),
        }
        print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main())
