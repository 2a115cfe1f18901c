"""NeMo-Gym with its own servers, each in a process of its own as its command starts them, and its collection of
rollouts: two prompts, two rollouts of each. The model alone is a stand-in."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from omegaconf import DictConfig

SERVERS = (
    "resources_servers/sums",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
    "environment_servers/legacy_agent",  # since 0.7 it passes the collection's requests on to the agent
)
NUMBER = {"type": "integer"}
TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"a": NUMBER, "b": NUMBER},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}


def settings(url: str, folder: Path) -> dict[str, Any]:
    """What else stands in YAML files: the servers, of which none gets an environment of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = {
        "entrypoint": "app.py",
        "base_url": url,
        "api_key": "sk-secret",
        "model": "tiny",
        "return_token_id_information": True,
        "uses_reasoning_parser": False,
    }
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "sums"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    return {
        "policy_model": {"responses_api_models": {"vllm_model": model}},
        "sums": {"resources_servers": {"sums": {"entrypoint": "app.py", "domain": "math"}}},
        "adder": {"responses_api_agents": {"simple_agent": agent}},
        "head_server": {"host": "127.0.0.1", "port": port},
        "observability_enabled": True,
        "model_call_capture_dir": str(folder / "captured"),
        "uv_venv_dir": str(folder / "environments"),
        "skip_venv_if_present": True,
    }


def main(url: str) -> None:
    """Print each rollout as the collection returns it, and nothing of what the servers say."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder = Path.cwd()
    for server in SERVERS:
        environment = folder / "environments" / server / ".venv"
        environment.parent.mkdir(parents=True, exist_ok=True)
        if not environment.exists():
            environment.symlink_to(sys.prefix)
    own = folder / SERVERS[0]
    own.parent.mkdir(exist_ok=True)
    if not own.exists():
        own.symlink_to(Path(__file__).parent / "sums")
    questions = [{"input": [{"role": "user", "content": f"Add 2 and {b}."}], "tools": [TOOL]} for b in (2, 5)]
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"responses_create_params": asked}) + "\n" for asked in questions))
    servers = RunHelper()
    given = DictConfig(settings(url, folder))
    servers.start(GlobalConfigDictParserConfig(initial_global_config_dict=given, skip_load_from_cli=True))
    try:
        collection = RolloutCollectionConfig(
            agent_name="adder",
            input_jsonl_fpath=str(rows),
            output_jsonl_fpath=str(folder / "rollouts.jsonl"),
            num_repeats=2,
            num_repeats_add_seed=True,
            upload_rollouts_to_wandb=False,
        )
        rollouts = asyncio.run(RolloutCollectionHelper().run_from_config(collection))
    finally:
        servers.shutdown()
    for rollout in rollouts:
        items = rollout["response"]["output"]
        row = {"task": rollout["_ng_task_index"], "rollout": rollout["_ng_rollout_index"], "reward": rollout["reward"]}
        row["said"] = [item.get("output") or item.get("arguments") or item["content"][0]["text"] for item in items]
        asked = [item for item in items if "output" not in item]
        row["tokens"] = [[item["prompt_token_ids"], item["generation_token_ids"]] for item in asked]
        print(json.dumps(row), file=told, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
