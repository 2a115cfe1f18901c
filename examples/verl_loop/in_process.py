"""veRL's own agent loop in one process: its worker, its ToolAgentLoop, its LLM client, its tools and reward manager.

Only the two ends are played: the inference engine answers from a script, and where veRL would call a Ray actor it calls
an object in this process. No GPU, no Ray cluster, no weights, no download.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

CHAT_TEMPLATE = """{%- if tools %}<|im_start|>system
tools:{%- for tool in tools %}{{ tool | tojson }}{%- endfor %}<|im_end|>
{% endif -%}
{%- for message in messages %}{%- if message.role == 'assistant' %}<|im_start|>assistant
{{ message.content }}{%- for call in (message.tool_calls or []) -%}
<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

Script = Callable[[str, int], str]
"""``script(conversation so far as text, turn) -> what the model says``; turns count from 0."""


def make_model(folder: Path) -> Any:
    """A model directory without a model: a byte-level tokenizer, a chat template, ten lines of Qwen2 configuration."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return tokenizer


def configuration(model: Path, overrides: Sequence[str] = ()) -> Any:
    """veRL's own PPO configuration, composed by Hydra as ``main_ppo`` does it."""
    import verl.trainer
    from hydra import compose, initialize_config_dir

    folder = str(Path(verl.trainer.__file__).parent / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.prompt_length=2048",
                "actor_rollout_ref.rollout.response_length=1024",
                "actor_rollout_ref.rollout.multi_turn.format=hermes",
                "data.return_raw_chat=True",
                *overrides,
            ],
        )


class Remote:
    """Stands where veRL holds a method of a Ray actor: ``.remote(...)`` returns something to await."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Start the call."""

        async def call() -> Any:
            result = self.function(*args, **kwargs)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.ensure_future(call())


def log_prob(token: int, place: int) -> float:
    """Always the same for the same token at the same place: mostly likely, now and then not."""
    return -0.01 - 4 * ((token * 37 + place * 11) % 101 / 101) ** 8


class ScriptedServer:
    """The engine server: tokens in, tokens out, after ``seconds`` of thinking; ``calls`` is what it saw and said."""

    def __init__(self, tokenizer: Any, script: Script, seconds: float = 0.001) -> None:
        self.tokenizer, self.script, self.seconds = tokenizer, script, seconds
        self.calls: list[dict[str, Any]] = []
        self.weight_version = 0
        self.generate = Remote(self._generate)

    async def _generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict, **kwargs: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        await asyncio.sleep(self.seconds)
        conversation = self.tokenizer.decode(prompt_ids)
        turn = conversation.count("<|im_start|>assistant") - 1
        said = self.script(conversation, turn) + "<|im_end|>"
        output_ids = self.tokenizer.encode(said, add_special_tokens=False)
        self.calls.append({"request_id": request_id, "prompt_ids": list(prompt_ids), "output_ids": list(output_ids)})
        return TokenOutput(
            token_ids=output_ids,
            log_probs=[log_prob(token, place) for place, token in enumerate(output_ids)],
            stop_reason="completed",
            extra_fields={"global_steps": self.weight_version},
        )


class LoadBalancer:
    """veRL's load balancer with one server."""

    def __init__(self, server: ScriptedServer) -> None:
        self.require_acquire_fields = Remote(lambda: [])
        self.require_release_fields = Remote(lambda: [])
        self.acquire_server = Remote(lambda request_id, **kwargs: ("server-0", server))
        self.release_server = Remote(lambda **kwargs: None)


class RewardHandle:
    """veRL's reward-loop worker (custom reward function, reward manager and all), called in this process."""

    def __init__(self, config: Any) -> None:
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

        self.compute_score = Remote(RewardLoopWorker(config).compute_score)


def worker(config: Any, server: ScriptedServer, reward: bool = True) -> Any:
    """veRL's agent-loop worker; call it inside the event loop it shall run in."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.workers.rollout.llm_server import LLMServerClient

    client = LLMServerClient(config=config, load_balancer_handle=LoadBalancer(server))
    return AgentLoopWorker(config, client, reward_loop_worker_handles=[RewardHandle(config)] if reward else None)


def rows(prompts: Sequence[dict[str, Any]], n: int = 1) -> dict[str, Any]:
    """Columns as veRL's trainer makes them of dataset rows, each repeated ``n`` times.

    A prompt: ``question``, ``answer``, ``uid``, and optionally ``index``, ``agent_name``, ``data_source``.
    """
    import numpy as np

    repeated = [prompt for prompt in prompts for _ in range(n)]

    def column(values: list[Any]) -> Any:
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made

    return {
        "raw_prompt": column([[{"role": "user", "content": prompt["question"]}] for prompt in repeated]),
        "agent_name": column([prompt.get("agent_name", "tool_agent") for prompt in repeated]),
        "data_source": column([prompt.get("data_source", "toy") for prompt in repeated]),
        "index": column([prompt.get("index", 0) for prompt in repeated]),
        "uid": column([prompt["uid"] for prompt in repeated]),
        "reward_model": column([{"style": "rule", "ground_truth": prompt["answer"]} for prompt in repeated]),
        "extra_info": column([{"index": prompt.get("index", 0)} for prompt in repeated]),
    }


async def rollout(agents: Any, prompts: Sequence[dict[str, Any]], n: int, step: int, validate: bool = False) -> Any:
    """One batch on the classic (V0) path; returns veRL's ``DataProto``."""
    from verl.protocol import DataProto

    columns = rows(prompts, n)
    columns["priority"] = __import__("numpy").arange(len(prompts) * n)
    meta = {"global_steps": step, "validate": validate}
    return await agents.generate_sequences(DataProto(batch=None, non_tensor_batch=columns, meta_info=meta))


class Store:
    """Stands in for TransferQueue: keeps what the V1 worker puts, by key ``{uid}_{session}_{output}``."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.status: dict[str, str] = {}

    def install(self) -> Store:
        """Become the module ``transfer_queue``; before veRL's V1 trainer is imported."""
        module: Any = types.ModuleType("transfer_queue")
        module.__spec__ = importlib.machinery.ModuleSpec("transfer_queue", None)
        module.init = lambda *args, **kwargs: None
        module.async_kv_put, module.async_kv_batch_put = self._put, self._put_batch

        def missing(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

        module.__getattr__ = missing
        sys.modules["transfer_queue"] = module
        return self

    async def _put(self, key: str, tag: dict[str, Any], **kwargs: Any) -> None:
        self.status[key] = tag["status"]

    async def _put_batch(self, keys: list[str], fields: Any, **kwargs: Any) -> None:
        for place, key in enumerate(keys):
            self.fields[key] = fields[place]


def worker_v1(config: Any, server: ScriptedServer, reward: bool = True) -> Any:
    """The worker of veRL 0.9's default (V1) path, taken out of its Ray actor class. ``Store().install()`` first."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
    from verl.workers.rollout.llm_server import LLMServerClient

    plain = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__
    client = LLMServerClient(config=config, load_balancer_handle=LoadBalancer(server))
    return plain(config, client, reward_loop_worker_handles=[RewardHandle(config)] if reward else None)


async def rollout_v1(agents: Any, prompts: Sequence[dict[str, Any]], step: int, validate: bool = False) -> None:
    """One batch on the V1 path: veRL repeats each prompt ``rollout.n`` times and puts the outputs into the store."""
    import torch
    from verl.utils import tensordict_utils

    batch = tensordict_utils.get_tensordict({**rows(prompts), "dummy": torch.zeros(len(prompts), 1)})
    tensordict_utils.assign_non_tensor_data(batch, "global_steps", step)
    tensordict_utils.assign_non_tensor_data(batch, "validate", validate)
    await agents.generate_sequences(batch)
    while agents.background_tasks:
        await asyncio.wait(list(agents.background_tasks))
