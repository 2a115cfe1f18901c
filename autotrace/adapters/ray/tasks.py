"""Ray's tasks: the trace context of who submits one becomes that of who runs it."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from autotrace.adapters.ray.actors import KEYWORD, packed
from autotrace.patch import adapting
from autotrace.record import context, faults


def wrap_submission() -> None:
    """A task's function has no place for a context unless Ray's own tracing is on: give it the same keyword."""
    remote_function = importlib.import_module("ray.remote_function")
    tracing = importlib.import_module("ray.util.tracing.tracing_helper")
    starting = importlib.import_module("ray._private.auto_init_hook")
    original = remote_function._inject_tracing_into_function
    # Ray's tracing decorator refuses calls that carry the keyword already, so ours goes below Ray's two
    decorated = remote_function.RemoteFunction._remote
    submit = inspect.unwrap(decorated)
    if _decorators(decorated) != ["auto_init_wrapper", "_invocation_remote_span"]:
        raise LookupError(f"RemoteFunction._remote is decorated by {_decorators(decorated)}")

    @functools.wraps(original)
    def _inject_tracing_into_function(function: Any) -> Any:
        traced = original(function)
        try:
            return with_context(traced) if _propagates(traced) else traced
        except Exception as error:
            faults.failed("ray:task", error)
            return traced

    @functools.wraps(submit)
    def _remote(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        try:
            if context.current_carrier() is not None and _task_takes_context(self):
                kwargs = packed(kwargs)
        except Exception as error:
            faults.failed("ray:submit", error)
        return submit(self, args, kwargs, *rest, **options)

    adapting.put(remote_function, "_inject_tracing_into_function", _inject_tracing_into_function)
    made = starting.wrap_auto_init(tracing._tracing_task_invocation(_remote))
    adapting.put(remote_function.RemoteFunction, "_remote", made)


def _decorators(function: Any) -> list[str]:
    """Names of the wrappers around a function, the outermost first."""
    names = []
    while hasattr(function, "__wrapped__"):
        names.append(function.__code__.co_name)
        function = function.__wrapped__
    return names


def _propagates(function: Any) -> bool:
    """Generators are left as they are (as Ray leaves them), and so is everything when workers load code by name."""
    worker = importlib.import_module("ray._private.worker").global_worker
    generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    return inspect.isfunction(function) and not generator and not getattr(worker, "load_code_from_local", False)


def _task_takes_context(task: Any) -> bool:
    if getattr(task, "_is_cross_language", False):
        return False
    signature = task._function_signature
    if signature is None:  # not submitted before: the keyword is put in on the way down
        return _propagates(task._function)
    return any(parameter.name == KEYWORD for parameter in signature)


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, run in the context its caller sent along.

    Ray pickles the returned function by value: it mentions nothing of autotrace but the import inside, so that a worker
    without autotrace runs the task all the same.
    """
    signature = inspect.signature(function)
    theirs = "_ray_trace_ctx" in signature.parameters

    @functools.wraps(function)
    def task(*args: Any, _ray_trace_ctx: Any = None, **kwargs: Any) -> Any:
        carrier = None
        if isinstance(_ray_trace_ctx, dict):
            carrier = _ray_trace_ctx.pop("autotrace", None)
            if theirs and _ray_trace_ctx:
                kwargs["_ray_trace_ctx"] = _ray_trace_ctx
        if carrier is None:
            return function(*args, **kwargs)
        try:
            from autotrace.record.context import attach
        except ImportError:
            return function(*args, **kwargs)
        with attach(bytes.fromhex(carrier)):
            return function(*args, **kwargs)

    if not theirs:
        added = inspect.Parameter(KEYWORD, inspect.Parameter.KEYWORD_ONLY, default=None)
        parameters = list(signature.parameters.values())
        end = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
        task.__signature__ = signature.replace(parameters=[*parameters[:end], added, *parameters[end:]])  # type: ignore[attr-defined]
    return task
