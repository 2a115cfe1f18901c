"""Follow veRL where a spec cannot.

- The MLflow or W&B run that veRL's own logger opened, the columns of the dataset, and, in ``configuration``, other
  facts about the run: a spec describes calls, and has no word for ``Bind`` records.
- The metrics of a step (``token_facts.logged``), which belong to no call and no trajectory.
- The user's own reward function, which has no name before veRL loads the function from a file.
- veRL's own rollout trace into a backend that autotrace has: autotrace takes over the settings and keeps veRL's client
  from starting, so nothing is traced twice. The same holds for veRL's extension points (``trace``). Both are actions,
  not records.
- Facts that the trainer learns about trajectories: see ``facts`` and ``token_facts``.
- The engine's id for a turn. Since 0.7 the engine gets a fresh id for every turn: ``LLMServerClient._vllm_request_id``
  makes the id; before 0.8 the ``uuid4`` that the agent loop's module imported does. With the id, a request whose
  context is lost on the way (a Ray whose calls cannot carry context) still finds its turn. ``id`` of a spec would name
  the trajectory, not the turn.

Read in the wheels of veRL 0.5.0 to 0.9.1. Anything unexpected is left alone.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from types import FrameType, ModuleType
from typing import Any

from autotrace.adapters import threads
from autotrace.adapters.hooks import Changed, changing, showing
from autotrace.adapters.trainers import Given, publish_runs, watch
from autotrace.adapters.verl import facts, token_facts, trace
from autotrace.adapters.verl.configuration import plain, publish_config, publish_worker
from autotrace.config import environment as env
from autotrace.patch import adapting, engine
from autotrace.record import context, statements
from autotrace.record.fields import ABSENT, Path


def watch_client(module: ModuleType) -> None:
    """Watch the client's own method that makes the id (veRL >= 0.8)."""
    original = vars(module.LLMServerClient).get("_vllm_request_id")
    if original is not None:
        made = showing(original, "verl:request", after=lambda id, *args, **kwargs: _requests(id))
        adapting.put(module.LLMServerClient, "_vllm_request_id", made)


def watch_manager(module: ModuleType) -> None:
    """Watch ``uuid4().hex`` in the module of the manager (veRL 0.7)."""
    manager = getattr(module, "AsyncLLMServerManager", None)
    if getattr(manager, "__module__", None) == module.__name__ and callable(getattr(module, "uuid4", None)):
        adapting.put(module, "uuid4", showing(module.uuid4, "verl:request", after=lambda id: _requests(id.hex)))


def _requests(id: Any) -> None:
    call = context.current_call()
    if call is not None and call.probe is not None and call.probe.role == "llm":
        statements.requests(str(id))


REWARD_KEY = "verl custom_reward_function"
"""Key of the user's reward function in reports."""


def install() -> None:
    """Register the hooks on the modules below. Called once, right after ``verl`` was imported."""
    threads.install()
    facts.install()
    trace.install()
    adapting.when_imported("verl.workers.rollout.llm_server", watch_client)
    adapting.when_imported("verl.experimental.agent_loop.agent_loop", watch_manager)
    watch("verl.utils.tracking", "Tracking.__init__", after=_logs)
    watch("verl.utils.tracking", "Tracking.log", after=token_facts.logged)
    adapting.when_imported("verl.utils.rollout_trace", _watch_workers)
    watch("verl.utils.dataset.rl_dataset", "RLHFDataset._read_files_and_tokenize", after=_has_columns)
    watch("verl.trainer.ppo.reward", "get_custom_reward_fn", after=record_reward)


# -- the run veRL's logger opened -------------------------------------------------------------------------------------


def _logs(_: Any, given: Given) -> None:
    """Publish the runs of the loggers, after ``Tracking.__init__`` opened the runs."""
    publish_config(given.get("config"))
    loggers = getattr(given["self"], "logger", {})
    publish_runs(loggers, given.get("project_name"), given.get("experiment_name"))


# -- workers, and veRL's own trace ------------------------------------------------------------------------------------


def _watch_workers(module: ModuleType) -> None:
    """Watch ``RolloutTraceConfig.init(...)``, which ends the constructor of every agent-loop worker in every release.

    Only there are configuration and tokenizer at hand before anything is traced. The worker classes have three names
    and are Ray actors, some decorated in their own module.
    """
    config = module.RolloutTraceConfig
    original = config.__dict__["init"].__func__
    signature = inspect.signature(original)

    def without_backend(*args: Any, **kwargs: Any) -> Changed:
        caller = sys._getframe(2)  # of ``init``, above the wrapper
        publish_worker(caller.f_locals.get("self"))
        given = signature.bind(*args, **kwargs)
        settings = {name: value for name, value in given.arguments.items() if name != "cls"}
        if settings.get("backend") is None:
            settings = _older_settings(caller)
        if settings.get("backend") is not None:
            statements.bind("verl_trace", {name: plain(value) for name, value in settings.items()})
        if given.arguments.get("backend") in _taken_over():
            given.arguments["backend"] = None
        return given.args, given.kwargs

    config.init = classmethod(changing(original, "verl:worker", without_backend))


def _taken_over() -> list[str]:
    """List veRL's trace backends that autotrace itself delivers to. With another backend veRL's tracer goes on."""
    return os.environ.get(env.TRACE_BACKENDS, "mlflow,weave").split(",")


def _older_settings(caller: FrameType) -> dict[str, Any]:
    """Read ``+trainer.rollout_trace.*`` of veRL's documentation before 0.5; no release with agent loops reads the
    keys."""
    worker = {"config": getattr(caller.f_locals.get("self"), "config", None)}
    names = ("backend", "token2text", "max_samples_per_step_per_worker")
    values = {name: Path(f"config.trainer.rollout_trace.{name}").read(worker) for name in names}
    return {"key": "trainer.rollout_trace", **{name: value for name, value in values.items() if value is not ABSENT}}


# -- the dataset ------------------------------------------------------------------------------------------------------


def _has_columns(_: Any, given: Given) -> None:
    # without an `agent_name` column veRL runs its single-turn loop, and no tool is ever called
    dataset = given["self"]
    columns = [str(name) for name in dataset.dataframe.column_names]
    statements.bind("dataset", {"columns": columns, "rows": len(dataset)})


# -- the user's reward function ---------------------------------------------------------------------------------------


def record_reward(loaded: Any, _: Given) -> None:
    """Record the user's function inside veRL's ``partial(call_with_kwargs, user_function, reward_kwargs)``."""
    if isinstance(loaded, functools.partial) and loaded.args and inspect.isfunction(loaded.args[0]):
        function = loaded.args[0]
        engine.record_function(function, key=REWARD_KEY, role="reward", name=function.__qualname__)
