"""uni-agent's whole session path on a CPU: AgentFrameworkRolloutAdapter -> AgentFrameworkWorker -> GatewayActor (HTTP)
<- harness process, veRL's LLMServerClient and router, TransferQueue, and veRL's own advantages over the rows. The
engine, SGLang's parser of tool calls and the update are stand-ins. ``UNI_AGENT``: a checkout of uni-agent."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
FLOWS = ("linear", "subagents", "compaction", "best_of", "rewrite", "crash", "hang", "raises", "long", "react", "mini")
PYTHONS = {"react": {"name": "react", "tools": [{"name": "submit"}]}, "mini": {"name": "lab_mini"}}
"""Harnesses in Python, whose side is recorded, too: uni-agent's own, and mini-swe-agent."""
ROLLOUTS = 2
WORK = tempfile.mkdtemp()
MODEL = str(Path(WORK, "model"))
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1",
    "TRANSFER_QUEUE_ENABLE": "1",
    "no_proxy": "*", "NO_PROXY": "*",
}  # fmt: skip
CALLS = (
    "{%- for c in (m.tool_calls or []) %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments}"
    " | tojson }}</tool_call>{%- endfor %}"
)
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\ntools:{%- for t in tools %}{{ t.function.name }} {%- endfor %}<|im_end|>\n"
    "{% endif -%}\n"
    "{%- for m in messages %}{%- if m.role == 'assistant' %}<|im_start|>assistant\n"
    "{{ m.content }}" + CALLS + "<|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model() -> None:
    """A tokenizer of bytes with a chat template, and a model's configuration."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = {"eos_token": "<|im_end|>", "pad_token": "<|pad|>", "additional_special_tokens": ["<|im_start|>"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **marks)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(MODEL)
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": len(tokenizer), "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 16384, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    Path(MODEL, "config.json").write_text(json.dumps(config))


def configured() -> Any:
    """veRL's configuration with uni-agent in it."""
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    rollout, folder = "actor_rollout_ref.rollout", str(Path(verl.trainer.__file__).parent / "config")
    custom = f"++{rollout}.custom.agent_framework"
    runner = f"{custom}.agent_runners.task"
    overrides = [
        f"actor_rollout_ref.model.path={MODEL}", f"{rollout}.name=vllm", f"{rollout}.n={ROLLOUTS}",
        f"{rollout}.prompt_length=4096", f"{rollout}.response_length=4096", f"{rollout}.multi_turn.format=hermes",
        f"{rollout}.calculate_log_probs=True", "data.return_raw_chat=True", "trainer.project_name=lab",
        "trainer.experiment_name=uni_agent", "algorithm.adv_estimator=grpo", "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"++{rollout}.agent.agent_loop_manager_class=uni_agent.framework.entry.AgentFrameworkRolloutAdapter",
        f"{custom}.gateway_count=2", f"{custom}.log_dir={WORK}/logs", f"{custom}.use_reward_loop_worker=False",
        f"{runner}.runner_fqn=tests.agent_frameworks.uni_agent.parts.runner", f"{runner}.dispatch_mode=ray_task",
        f"{runner}.max_concurrent_sessions=8", f"{runner}.trajectory_selection=all",
    ]  # fmt: skip
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    return config


def batch() -> Any:
    """A prompt for each flow."""
    import numpy as np
    import torch
    from verl.utils import tensordict_utils

    prompts = [[{"role": "user", "content": f"count the files of {number}"}] for number in range(len(FLOWS))]
    tasks = [
        {"name": "lab_count", "sandbox": {"provider": "local"}, "prompt": prompt,
         "agent": PYTHONS.get(flow, {"name": "lab_harness", "flow": flow})}
        for prompt, flow in zip(prompts, FLOWS, strict=True)
    ]  # fmt: skip
    columns: dict[str, list[Any]] = {
        "raw_prompt": prompts, "uid": [f"uid-{flow}" for flow in FLOWS], "index": [*range(len(FLOWS))],
        "data_source": ["lab"] * len(FLOWS), "agent_name": ["task"] * len(FLOWS),
        "tools_kwargs": [{"task": task} for task in tasks],
    }  # fmt: skip
    arrays = {name: np.array([*values, None], dtype=object)[:-1] for name, values in columns.items()}
    made = tensordict_utils.get_tensordict({**arrays, "dummy": torch.zeros(len(FLOWS), 1)})
    tensordict_utils.assign_non_tensor_data(made, "global_steps", 3)
    return made


def train(config: Any) -> None:
    """Roll out, compute advantages, and print what each row of the queue has."""
    import ray
    import transfer_queue as queue
    from uni_agent.framework.entry import AgentFrameworkRolloutAdapter
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import get_router_handle

    from tests.agent_frameworks.uni_agent import parts

    queue.init(config.transfer_queue)
    engine = ray.remote(parts.Engine).remote(MODEL)
    client = LLMServerClient(config=config, load_balancer_handle=get_router_handle(servers={"s0": engine}))
    adapter = AgentFrameworkRolloutAdapter.create(config=config, llm_client=client)
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 3}] * len(FLOWS)
    queue.kv_batch_put(keys=[f"uid-{flow}" for flow in FLOWS], partition_id="train", tags=tags)
    adapter.generate_sequences_and_wait(batch())
    rows = queue.kv_list("train")["train"]
    keys = sorted(key for key, tag in rows.items() if tag.get("status") == "success")

    def whole() -> Any:
        tags = [rows[key] for key in keys]
        return queue.KVBatchMeta(keys=keys, partition_id="train", tags=tags, fields=None, extra_info={})

    # veRL's own code from the rows to the advantages; the update itself is a stand-in
    actor = SimpleNamespace(update_actor=lambda batch: {"metrics": {"mfu": [0.0]}})
    trainer = SimpleNamespace(config=config, global_steps=3, actor_rollout_wg=actor, distillation_config=None)
    of_train = {"keys": keys, "partition_id": "train"}
    given = queue.kv_batch_get(**of_train, select_fields=["response_mask", "rollout_log_probs", "rm_scores"])
    old = given.select("rollout_log_probs").rename_key_("rollout_log_probs", "old_log_probs")
    queue.kv_batch_put(**of_train, fields=old)
    PPOTrainer._compute_advantage(trainer, whole(), {})
    back = queue.kv_batch_get(**of_train, select_fields=["advantages", "rm_scores", "response_mask"])
    for number, key in enumerate(keys):
        mask = back["response_mask"][number]
        advantage = float((back["advantages"][number] * mask).sum() / mask.sum().clamp(min=1))
        uid, rollout, row = key.rsplit("_", 2)
        print(json.dumps({
            "uid": uid, "rollout_n": int(rollout), "row": int(row), "trained": int(mask.sum()),
            "reward": float(back["rm_scores"][number].sum()), "advantage": advantage,
        }), flush=True)  # fmt: skip
    PPOTrainer._update_actor(trainer, whole(), {})
    queue.close()


def main() -> None:
    """Play all flows."""
    paths = [str(HERE.parents[2]), str(HERE / "stubs"), os.environ["UNI_AGENT"]]
    os.environ.update(QUIET, PYTHONPATH=os.pathsep.join(paths))
    sys.path[1:1] = paths
    make_model()
    config = configured()
    import ray

    # logical CPUs; Ray's processes must not ask a proxy for the gateway
    given = {name: os.environ[name] for name in ("PYTHONPATH", "UNI_AGENT")}
    ray.init(num_cpus=16, include_dashboard=False, runtime_env={"env_vars": given})
    try:
        train(config)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
