"""Publish veRL's configuration of agents, and the rollout's tokenizer, for the shipper.

Both describe the run, and a spec describes calls: a spec has no word for ``Bind`` records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from autotrace.adapters.trainers import end_tokens
from autotrace.record import statements
from autotrace.record.fields import ABSENT, Path

_ROLLOUT = "actor_rollout_ref.rollout"
_SECTIONS = {
    "trainer": "project_name experiment_name logger nnodes n_gpus_per_node use_v1 rollout_data_dir",
    "trainer.v1": "trainer_mode",
    "trainer.v1.sampler": "max_off_policy_threshold",
    "algorithm": "adv_estimator norm_adv_by_std_in_grpo",
    "algorithm.rollout_correction": "bypass_mode rollout_is rollout_rs",
    "data": "train_batch_size",
    "actor_rollout_ref.actor": "loss_agg_mode",
    _ROLLOUT: "prompt_length response_length max_model_len temperature top_p top_k calculate_log_probs logprobs_mode",
    f"{_ROLLOUT}.agent": "default_agent_loop agent_loop_config_path",
    f"{_ROLLOUT}.multi_turn": "max_assistant_turns max_user_turns tool_config_path function_tool_path",
}
"""Maps a section of veRL's configuration to the reported keys."""
_RENAMED = {
    "model_path": "actor_rollout_ref.model.path", "rollout_name": f"{_ROLLOUT}.name",
    "rollout_mode": f"{_ROLLOUT}.mode", "rollout_n": f"{_ROLLOUT}.n", "rollout_dtype": f"{_ROLLOUT}.dtype",
    "agent_workers": f"{_ROLLOUT}.agent.num_workers", "multi_turn": f"{_ROLLOUT}.multi_turn.enable",
    "tool_format": f"{_ROLLOUT}.multi_turn.format",
}  # fmt: skip
_KEYS = {key: f"{section}.{key}" for section, keys in _SECTIONS.items() for key in keys.split()} | _RENAMED
CONFIG = {name: Path(f"config.{path}") for name, path in _KEYS.items()}
"""Maps names in ``Bind("config")`` to paths in veRL's configuration. No path leads to a secret."""
PACKAGES = ("verl", "torch", "transformers", "vllm", "sglang", "ray", "tensordict")
"""Lists packages whose installed versions are reported."""


def publish_worker(worker: Any) -> None:
    """Report ``Bind("config")`` and ``Bind("tokenizer")`` from an agent-loop worker."""
    config = getattr(worker, "config", None)
    if config is None:
        return
    publish_config(config)
    statements.bind("versions", {name: version for name in PACKAGES if (version := _version(name)) is not None})
    model = Path("config.actor_rollout_ref.model").read({"config": config})
    tokenizer = getattr(worker, "tokenizer", None)
    sources = {"model": model, "tokenizer": tokenizer, "worker": worker}
    statements.bind(
        "tokenizer",
        {
            # the tokenizer's place on this node, which another process can load from
            "path": _first(sources, "tokenizer.name_or_path", "model.tokenizer_path", "model.path"),
            "source": _first(sources, "model.tokenizer_path", "model.path"),
            "trust_remote_code": bool(_first(sources, "model.trust_remote_code")),
            "class": type(tokenizer).__name__,
            "processor": getattr(worker, "processor", None) is not None,
            "end_tokens": end_tokens(tokenizer),
        },
    )


def _version(package: str) -> str | None:
    with contextlib.suppress(Exception):  # not installed, or with metadata that cannot be read
        return metadata.version(package)
    return None


def publish_config(config: Any) -> None:
    """Report ``Bind("config")`` from veRL's configuration (a ``DictConfig`` or plain dicts); nothing for None."""
    if config is None:
        return
    values = {name: path.read({"config": config}) for name, path in CONFIG.items()}
    statements.bind("config", {name: plain(value) for name, value in values.items() if value is not ABSENT})


def _first(sources: Mapping[str, Any], *paths: str) -> Any:
    values = (Path(text).read(sources) for text in paths)
    return next((plain(value) for value in values if value is not ABSENT and value is not None), None)


def plain(value: Any) -> Any:
    """Convert ``value`` for JSON; a ``ListConfig`` becomes a list, any other non-scalar becomes text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return [plain(item) for item in value]
    return str(value)
