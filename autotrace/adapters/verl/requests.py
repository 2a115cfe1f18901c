"""veRL: the id that the engine has for a turn.

Since 0.7 the engine is given a fresh id for every turn: ``LLMServerClient._vllm_request_id`` makes it, before 0.8 the
``uuid4`` that the agent loop's module imported. It is recorded here, so that a request whose context is lost on the
way (a Ray whose calls cannot carry it) still finds its turn. ``id`` of a list would name the trajectory, not the turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotrace.patch import adapting
from autotrace.record import context, faults, statements


def install() -> None:
    """Register the hooks on the modules below. Called once, after ``verl`` was imported."""
    adapting.when_imported("verl.workers.rollout.llm_server", watch_client)
    adapting.when_imported("verl.experimental.agent_loop.agent_loop", watch_manager)


def watch_client(module: ModuleType) -> None:
    """veRL >= 0.8: the client's own method makes the id."""
    client = module.LLMServerClient
    original = client.__dict__.get("_vllm_request_id")
    if original is not None:
        client._vllm_request_id = _recording(original, lambda made: made)


def watch_manager(module: ModuleType) -> None:
    """veRL 0.7: the manager of the same module calls ``uuid4().hex``."""
    manager = getattr(module, "AsyncLLMServerManager", None)
    if getattr(manager, "__module__", None) == module.__name__ and callable(getattr(module, "uuid4", None)):
        module.uuid4 = _recording(module.uuid4, lambda made: made.hex)  # type: ignore[attr-defined]


def _recording(original: Callable[..., Any], id_of: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            call = context.current.get()
            if call is not None and call.probe is not None and call.probe.role == "llm":
                statements.requests(str(id_of(result)))
        except Exception as error:
            faults.failed("verl:request", error)
        return result

    return made
