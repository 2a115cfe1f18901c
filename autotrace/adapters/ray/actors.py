"""Carry the trace context across Ray's actors and tasks, and find the class that holds an actor's methods.

The caller's context becomes the context of the executing side. A call that leaves the process takes the context along
only if somebody packs the context. Ray has a place: the keyword ``_ray_trace_ctx`` (meant for Ray's OpenTelemetry
integration, a dict) in the signature of every actor method. Ray's own wrappers ignore the value while that integration
is off. Our carrier is another key of the dict, so a worker without autotrace never notices the carrier, and Ray's
tracing keeps working beside ours.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autotrace.adapters.hooks import Changed, changing
from autotrace.patch import adapting
from autotrace.record import context, faults

KEYWORD = "_ray_trace_ctx"
OURS = "autotrace"
"""Key for autotrace in Ray's context dict."""


def class_behind(value: Any) -> type | None:
    """Return the class that Ray copied the methods into, given the result of ``@ray.remote`` in the module.

    Attributes set on the ``ActorClass`` itself do nothing at all.
    """
    kind = type(value)
    if kind.__module__ == "ray.actor" or kind.__name__.startswith("ActorClass("):
        cls = getattr(getattr(value, "__ray_metadata__", None), "modified_class", None)
        return cls if isinstance(cls, type) else None
    return None


def refusal(value: Any, owner: Any, attribute: str) -> str | None:
    """Explain why ``value`` cannot be wrapped at its place."""
    if class_behind(value) is not None:
        return f"it is an actor class: name its methods, e.g. {attribute}.run or {attribute}.*"
    return None


# -- the context, packed into a call ----------------------------------------------------------------------------------


def packed(kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return ``kwargs`` of a call with the current context packed in; None without a context to carry."""
    carrier = context.current_carrier()
    if carrier is None:
        return None
    given = kwargs or {}
    # Ray's own context is already inside if its OpenTelemetry integration is on
    theirs = given.get(KEYWORD)
    return {**given, KEYWORD: {**(theirs if isinstance(theirs, dict) else {}), OURS: carrier.hex()}}


def unpacked(kwargs: dict[str, Any]) -> bytes | None:
    """Take our carrier out of the ``kwargs`` that a call arrived with, and leave Ray's own context in."""
    carried = kwargs.get(KEYWORD)
    if not isinstance(carried, dict) or OURS not in carried:
        return None
    theirs = {name: value for name, value in carried.items() if name != OURS}
    if theirs:
        kwargs[KEYWORD] = theirs
    else:
        del kwargs[KEYWORD]
    return bytes.fromhex(carried[OURS])


# -- both ends of a call ----------------------------------------------------------------------------------------------


def wrap_call() -> None:
    """Send the current context with each call of an actor's method."""
    handle = importlib.import_module("ray.actor").ActorHandle
    original = handle._actor_method_call

    def with_context(self: Any, method_name: str, *args: Any, **options: Any) -> Changed:
        if len(args) < 2 and context.current_carrier() is not None and _takes_context(self, method_name):
            options["kwargs"] = packed(options.get("kwargs"))  # Ray never gives kwargs by position
        return (self, method_name, *args), options

    adapting.put(handle, "_actor_method_call", changing(original, "ray:call", with_context))


def _takes_context(handle: Any, method_name: str) -> bool:
    """Tell whether the method's signature has Ray's context keyword (generators and other languages have not)."""
    signature = handle._ray_method_signatures.get(method_name)
    return bool(signature) and any(parameter.name == KEYWORD for parameter in signature)


def wrap_execution() -> None:
    """Attach the context that came with a call, in the actor."""
    registry = importlib.import_module("ray._private.function_manager").FunctionActorManager
    original = registry._make_actor_method_executor

    @functools.wraps(original)
    def _make_actor_method_executor(self: Any, method_name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        return executor(original(self, method_name, method, *args, **kwargs), inspect.iscoroutinefunction(method))

    adapting.put(registry, "_make_actor_method_executor", _make_actor_method_executor)


def executor(inner: Callable[..., Any], coroutine: bool) -> Callable[..., Any]:
    """Wrap ``inner`` to run in the context that the caller sent. ``coroutine``: the result is awaited elsewhere."""

    def actor_method_executor(__ray_actor: Any, *args: Any, **kwargs: Any) -> Any:
        carrier = _received(kwargs)
        if carrier is None:
            return inner(__ray_actor, *args, **kwargs)
        if coroutine:
            return _awaited(inner, carrier, (__ray_actor, *args), kwargs)
        with context.attach(carrier):
            return inner(__ray_actor, *args, **kwargs)

    actor_method_executor.__dict__.update(inner.__dict__)  # Ray looks at .name and .method
    return actor_method_executor


async def _awaited(inner: Callable[..., Any], carrier: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attach the context in the task that runs the method, which differs from the task that makes the coroutine."""
    with context.attach(carrier):
        return await inner(*args, **kwargs)


def _received(kwargs: dict[str, Any]) -> bytes | None:
    try:
        return unpacked(kwargs)
    except Exception as error:
        faults.failed("ray:execute", error)
        return None


def wrap_submission() -> None:
    """Give a task's function the keyword that actor methods have.

    A task's function has no place for a context unless Ray's own tracing is on.
    """
    remote_function = importlib.import_module("ray.remote_function")
    tracing = importlib.import_module("ray.util.tracing.tracing_helper")
    starting = importlib.import_module("ray._private.auto_init_hook")
    original = remote_function._inject_tracing_into_function
    # Ray's tracing decorator refuses calls that already carry the keyword, so ours goes below Ray's two
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

    def carrying(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Changed:
        if context.current_carrier() is not None and _task_takes_context(self):
            kwargs = packed(kwargs)
        return (self, args, kwargs, *rest), options

    adapting.put(remote_function, "_inject_tracing_into_function", _inject_tracing_into_function)
    made = starting.wrap_auto_init(tracing._tracing_task_invocation(changing(submit, "ray:submit", carrying)))
    adapting.put(remote_function.RemoteFunction, "_remote", made)


def _decorators(function: Any) -> list[str]:
    """List the names of the wrappers around a function, the outermost first."""
    names = []
    while hasattr(function, "__wrapped__"):
        names.append(function.__code__.co_name)
        function = function.__wrapped__
    return names


def _propagates(function: Any) -> bool:
    """Tell whether a function gets the keyword. Generators stay unchanged (as in Ray), and so does every function if
    workers load code by name."""
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
    """Wrap ``function`` to run in the context that the caller sent.

    Ray pickles the returned function by value. The function mentions nothing of autotrace except the import inside, so
    that a worker without autotrace runs the task all the same.
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
