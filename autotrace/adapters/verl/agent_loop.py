"""veRL: what its list cannot express.

- Which MLflow or W&B run veRL's own logger opened, which tokenizer the rollout uses, what the configuration says about
  agents, and which columns the dataset has: published when they are read (``Bind`` records), for the shipper.
- The user's own reward function, which has no name before veRL loads it from a file.
- veRL's own rollout trace into a backend that autotrace has: its settings become ours, and its client is kept from
  starting, so nothing is traced twice.

Read in the wheels of veRL 0.5.0 to 0.9.1. What is not as expected is left alone.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

from autotrace import patch
from autotrace.adapters import concurrent_futures
from autotrace.adapters.trainer_runs import publish_runs
from autotrace.adapters.verl import facts, requests, step_metrics, trace
from autotrace.config import environment as env
from autotrace.record import faults, statements
from autotrace.record.fields import ABSENT, Path

_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")
"""Tokens of chat templates that end a turn, where a tokenizer has them."""
REWARD_KEY = "verl custom_reward_function"
"""Target key of the user's reward function in reports."""

_ROLLOUT = "config.actor_rollout_ref.rollout"
CONFIG = {
    "project_name": "config.trainer.project_name",
    "experiment_name": "config.trainer.experiment_name",
    "logger": "config.trainer.logger",
    "nnodes": "config.trainer.nnodes",
    "n_gpus_per_node": "config.trainer.n_gpus_per_node",
    "use_v1": "config.trainer.use_v1",
    "rollout_data_dir": "config.trainer.rollout_data_dir",
    "adv_estimator": "config.algorithm.adv_estimator",
    "train_batch_size": "config.data.train_batch_size",
    "model_path": "config.actor_rollout_ref.model.path",
    "rollout_name": f"{_ROLLOUT}.name",
    "rollout_mode": f"{_ROLLOUT}.mode",
    "rollout_n": f"{_ROLLOUT}.n",
    "agent_workers": f"{_ROLLOUT}.agent.num_workers",
    "default_agent_loop": f"{_ROLLOUT}.agent.default_agent_loop",
    "agent_loop_config_path": f"{_ROLLOUT}.agent.agent_loop_config_path",
    "multi_turn": f"{_ROLLOUT}.multi_turn.enable",
    "tool_config_path": f"{_ROLLOUT}.multi_turn.tool_config_path",
    "function_tool_path": f"{_ROLLOUT}.multi_turn.function_tool_path",
    "tool_format": f"{_ROLLOUT}.multi_turn.format",
    "prompt_length": f"{_ROLLOUT}.prompt_length",
    "response_length": f"{_ROLLOUT}.response_length",
    "max_model_len": f"{_ROLLOUT}.max_model_len",
    "max_assistant_turns": f"{_ROLLOUT}.multi_turn.max_assistant_turns",
    "max_user_turns": f"{_ROLLOUT}.multi_turn.max_user_turns",
    "temperature": f"{_ROLLOUT}.temperature",
    "top_p": f"{_ROLLOUT}.top_p",
    "top_k": f"{_ROLLOUT}.top_k",
    "calculate_log_probs": f"{_ROLLOUT}.calculate_log_probs",
    "logprobs_mode": f"{_ROLLOUT}.logprobs_mode",
    "rollout_dtype": f"{_ROLLOUT}.dtype",
    "bypass_mode": "config.algorithm.rollout_correction.bypass_mode",
    "rollout_is": "config.algorithm.rollout_correction.rollout_is",
    "rollout_rs": "config.algorithm.rollout_correction.rollout_rs",
    "loss_agg_mode": "config.actor_rollout_ref.actor.loss_agg_mode",
    "norm_adv_by_std_in_grpo": "config.algorithm.norm_adv_by_std_in_grpo",
    "trainer_mode": "config.trainer.v1.trainer_mode",
    "max_off_policy_threshold": "config.trainer.v1.sampler.max_off_policy_threshold",
}
"""What ``Bind("config")`` holds, and where it stands in veRL's configuration. No secrets among them."""
_CONFIG = {name: Path(text) for name, text in CONFIG.items()}


def install() -> None:
    """Register the hooks on the modules below. Called once, right after ``verl`` was imported."""
    concurrent_futures.install()
    facts.install()
    requests.install()
    trace.install()
    patch.when_imported("verl.utils.tracking", _watch_tracking)
    patch.when_imported("verl.utils.rollout_trace", _watch_workers)
    patch.when_imported("verl.utils.dataset.rl_dataset", _watch_dataset)
    patch.when_imported("verl.trainer.ppo.reward", _wrap_rewards)


# -- the run veRL's logger opened -------------------------------------------------------------------------------------


def _watch_tracking(module: ModuleType) -> None:
    tracking = module.Tracking
    original = tracking.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            given = signature.bind(self, *args, **kwargs).arguments
            publish_config(given.get("config"))
            publish_runs(getattr(self, "logger", {}), given.get("project_name"), given.get("experiment_name"))
        except Exception as error:
            faults.failed("verl:tracking", error)

    tracking.__init__ = __init__
    facts.observe(tracking, "log", after=step_metrics.logged)


# -- configuration, tokenizer, veRL's own trace -----------------------------------------------------------------------


def _watch_workers(module: ModuleType) -> None:
    """Every agent-loop worker of every release ends its constructor with ``RolloutTraceConfig.init(...)``.

    Only there are the configuration and the tokenizer at hand before anything is traced; the worker
    classes themselves have three names and are Ray actors, some decorated in their own module.
    """
    config = module.RolloutTraceConfig
    original = config.__dict__["init"].__func__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(cls: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            caller = sys._getframe(1)
            _publish_worker(caller)
            given = signature.bind(cls, *args, **kwargs)
            settings = {name: value for name, value in given.arguments.items() if name != "cls"}
            if settings.get("backend") is None:
                settings = _older_settings(caller)
            if settings.get("backend") is not None:
                statements.bind("verl_trace", {name: plain(value) for name, value in settings.items()})
            if given.arguments.get("backend") in _taken_over():
                given.arguments["backend"] = None
                args, kwargs = given.args[1:], given.kwargs
        except Exception as error:
            faults.failed("verl:worker", error)
        return original(cls, *args, **kwargs)

    config.init = classmethod(init)


def _taken_over() -> list[str]:
    """veRL's trace backends that autotrace delivers to itself. With another one veRL's tracer goes on."""
    return os.environ.get(env.TRACE_BACKENDS, "mlflow,weave").split(",")


def _older_settings(caller: FrameType) -> dict[str, Any]:
    """``+trainer.rollout_trace.*``, as veRL's documentation had it before 0.5; no release with agent loops reads it."""
    worker = {"config": getattr(caller.f_locals.get("self"), "config", None)}
    names = ("backend", "token2text", "max_samples_per_step_per_worker")
    values = {name: Path(f"config.trainer.rollout_trace.{name}").read(worker) for name in names}
    return {"key": "trainer.rollout_trace", **{name: value for name, value in values.items() if value is not ABSENT}}


def _publish_worker(caller: FrameType) -> None:
    worker = caller.f_locals.get("self")
    config = getattr(worker, "config", None)
    if config is None:
        return
    publish_config(config)
    model = Path("config.actor_rollout_ref.model").read({"config": config})
    tokenizer = getattr(worker, "tokenizer", None)
    sources = {"model": model, "tokenizer": tokenizer, "worker": worker}
    statements.bind(
        "tokenizer",
        {
            # where it was loaded from on this node, which is what another process can load it from
            "path": _first(sources, "tokenizer.name_or_path", "model.tokenizer_path", "model.path"),
            "source": _first(sources, "model.tokenizer_path", "model.path"),
            "trust_remote_code": bool(_first(sources, "model.trust_remote_code")),
            "class": type(tokenizer).__name__,
            "processor": getattr(worker, "processor", None) is not None,
            "end_tokens": _end_tokens(tokenizer),
        },
    )


def _end_tokens(tokenizer: Any) -> list[int]:
    """The token that ends an answer, and the one that ends a turn of the chat template where it is another."""
    ends = {getattr(tokenizer, "eos_token_id", None)}
    known = getattr(tokenizer, "added_tokens_encoder", None)
    if isinstance(known, dict):
        ends |= {known.get(name) for name in _TURN_ENDS}
    return sorted(end for end in ends if type(end) is int)


def publish_config(config: Any) -> None:
    """``Bind("config")`` from veRL's configuration (a ``DictConfig`` or plain dicts); nothing for None."""
    if config is None:
        return
    values = {name: path.read({"config": config}) for name, path in _CONFIG.items()}
    statements.bind("config", {name: plain(value) for name, value in values.items() if value is not ABSENT})


def _first(sources: Mapping[str, Any], *paths: str) -> Any:
    values = (Path(text).read(sources) for text in paths)
    return next((plain(value) for value in values if value is not ABSENT and value is not None), None)


def plain(value: Any) -> Any:
    """``value`` as JSON knows it; a ``ListConfig`` becomes a list, anything else that is not a scalar becomes text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return [plain(item) for item in value]
    return str(value)


# -- the dataset ------------------------------------------------------------------------------------------------------


def _watch_dataset(module: ModuleType) -> None:
    dataset = module.RLHFDataset
    original = dataset._read_files_and_tokenize

    @functools.wraps(original)
    def _read_files_and_tokenize(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            # without an `agent_name` column veRL runs its single-turn loop, and no tool is ever called
            statements.bind(
                "dataset", {"columns": [str(name) for name in self.dataframe.column_names], "rows": len(self)}
            )
        except Exception as error:
            faults.failed("verl:dataset", error)
        return result

    dataset._read_files_and_tokenize = _read_files_and_tokenize


# -- the user's reward function ---------------------------------------------------------------------------------------


def _wrap_rewards(module: ModuleType) -> None:
    original = module.get_custom_reward_fn

    @functools.wraps(original)
    def get_custom_reward_fn(*args: Any, **kwargs: Any) -> Any:
        loaded = original(*args, **kwargs)
        try:
            return traced_reward(loaded)
        except Exception as error:
            faults.failed("verl:reward", error)
            return loaded

    module.get_custom_reward_fn = get_custom_reward_fn  # type: ignore[attr-defined]


def traced_reward(loaded: Any) -> Any:
    """What veRL loaded, with the user's function inside recording its calls.

    veRL returns ``partial(call_with_kwargs, user_function, reward_kwargs)``. Only the function inside is replaced (and
    its name in the user's module with it, so it pickles as before), and only if it is written in Python.
    """
    if not isinstance(loaded, functools.partial) or not loaded.args or not inspect.isfunction(loaded.args[0]):
        return loaded
    function = loaded.args[0]
    wrapped = patch.wrap_function(function, key=REWARD_KEY, role="reward", name=function.__qualname__)
    home = sys.modules.get(function.__module__)
    if home is not None and getattr(home, function.__qualname__, None) is function:
        setattr(home, function.__qualname__, wrapped)
    return functools.partial(loaded.func, wrapped, *loaded.args[1:], **loaded.keywords)
