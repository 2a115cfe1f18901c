"""Rollouts of OpenRLHF's own executors in its own actor, whose vLLM is a stand-in that answers by rule, and its own
computing of their advantages."""

# ruff: noqa: E402 - what the imports need is put into place first
from __future__ import annotations

import asyncio
import itertools
import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch

from tests.agent_frameworks import scripted

ROLLOUTS = 3
TOKENIZER = scripted.tokenizer()


@dataclass
class SamplingParams:
    max_tokens: int | None = 64
    logprobs: int | None = 1


class Engine:
    """As ``vllm.AsyncLLMEngine``: an iterator of outputs. Every second conversation ends wrong."""

    def __init__(self) -> None:
        self._number = itertools.count()

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> Any:
        await asyncio.sleep(0)
        text = TOKENIZER.decode(prompt["prompt_token_ids"])
        said = scripted.answer(text, right="result" not in text or next(self._number) % 2 == 0) + scripted.MARKS[-1]
        ids = TOKENIZER.encode(said, add_special_tokens=False)
        logprobs = [{token: types.SimpleNamespace(logprob=scripted.LOGPROB)} for token in ids]
        output = types.SimpleNamespace(token_ids=ids, text=said, finish_reason="stop", logprobs=logprobs)
        yield types.SimpleNamespace(outputs=[output], request_id=request_id)


def stand_in_for_vllm() -> None:
    """What ``openrlhf.trainer.ray.vllm_engine`` imports of vLLM."""
    numbers = itertools.count()
    for name, members in {
        "vllm": {"__version__": "0.29.0", "SamplingParams": SamplingParams},
        "vllm.inputs": {"TokensPrompt": dict},
        "vllm.utils": {"random_uuid": lambda: f"request-{next(numbers)}"},
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module


def stand_in_for_models() -> None:
    """What the computing of advantages imports and does not use: DeepSpeed, and models that need it."""
    import openrlhf

    models = types.ModuleType("openrlhf.models")
    models.__path__ = [str(Path(openrlhf.__path__[0], "models"))]
    launcher = types.ModuleType("openrlhf.trainer.ray.launcher")
    launcher.__dict__["RayActorGroup"] = object
    for module in (models, launcher, types.ModuleType("deepspeed")):
        sys.modules[module.__name__] = module


stand_in_for_vllm()
stand_in_for_models()

from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray import vllm_engine
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor, SingleTurnAgentExecutor


class Sums(AgentInstanceBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.asked = False

    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        numbers = scripted.called(state_dict["action_text"])
        right = f"It is {state_dict['label']}." in state_dict["action_text"]
        return {
            "rewards": torch.tensor(0.1 if numbers else float(right)),
            "environment_feedback": f"<|user|>result: {sum(numbers)}<|end|><|assistant|>" if numbers else "",
            "done": numbers is None,
            "extra_logs": {"right": right},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self) -> None:
        super().__init__(Sums)


async def main(reward_file: str) -> None:
    """Two prompts with each executor; prints what is trained on."""
    actor_class = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class
    for executor in (AgentExecutor(), SingleTurnAgentExecutor(reward_file)):
        actor = object.__new__(actor_class)
        actor.executor, actor.llm, actor._mm_pad_token_ids = executor, Engine(), None
        prompts = ["<|user|>What is 2 plus 2?<|end|><|assistant|>", "<|user|>What is 2 plus 3?<|end|><|assistant|>"]
        groups = await asyncio.gather(
            *(
                actor.generate_responses(prompt, label, SamplingParams(), 400, TOKENIZER, num_samples=ROLLOUTS)
                for prompt, label in zip(prompts, ("4", "5"), strict=True)
            )
        )
        responses = [response for group in groups for response in group]
        for number, (response, advantage) in enumerate(zip(responses, advantages(responses), strict=True)):
            told = {"executor": type(executor).__name__, "prompt": number // ROLLOUTS,
                    "tokens": response["observation_tokens"], "ranges": response["action_ranges"],
                    "reward": float(response["reward"]), "advantage": advantage}  # fmt: skip
            print(json.dumps(told))


def advantages(responses: list[dict[str, Any]]) -> list[float]:
    """As the trainer computes them, in small batches; their forward passes are left out."""
    generator, maker = object.__new__(SamplesGenerator), object.__new__(RemoteExperienceMaker)
    rows = [generator._process_response_into_experience(response, max_len=400) for response in responses]
    maker.args = types.SimpleNamespace(
        algo=types.SimpleNamespace(advantage=types.SimpleNamespace(estimator="group_norm", gamma=1.0)),
        reward=types.SimpleNamespace(clip_range=None),
        rollout=types.SimpleNamespace(micro_batch_size=2, n_samples_per_prompt=ROLLOUTS),
        train=types.SimpleNamespace(dynamic_batch_enable=False),
    )
    maker.strategy, maker.advantage_estimator = types.SimpleNamespace(args=maker.args), "group_norm"
    maker.tokenizer, maker.kl_ctl = TOKENIZER, types.SimpleNamespace(value=0.0)
    batches = maker.split_rollout_samples(rows)
    for batch in batches:
        batch.kl = torch.zeros_like(batch.action_mask, dtype=torch.float32)
    computed = maker.compute_advantages_and_returns(batches)
    pairs = [pair for batch in computed for pair in zip(batch.advantages, batch.action_mask, strict=True)]
    return [float(row[mask.bool()][0]) for row, mask in pairs]


REWARD = """
import torch

def reward_func(queries, prompts, labels):
    rewards = torch.tensor([float("add(" in query) / 2 for query in queries])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"length": torch.tensor([len(queries[0])])}}
"""

if __name__ == "__main__":
    file = Path("reward.py")
    file.write_text(REWARD)
    asyncio.run(main(str(file)))
