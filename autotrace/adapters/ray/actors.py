"""Ray's actors: the trace context across their calls, and which class their methods are wrapped on.

A call that leaves the process takes its context along only if somebody packs it. Ray has a place for that: it puts the
keyword ``_ray_trace_ctx`` (meant for its OpenTelemetry integration, a dict) into the signature of every actor method,
and its own wrappers ignore the value while that integration is off. Our carrier is one more key of that dict, so a
worker without autotrace never notices it, and Ray's tracing keeps working beside ours.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autotrace.patch import adapting
from autotrace.record import context, faults

KEYWORD = "_ray_trace_ctx"
OURS = "autotrace"
"""Our key in Ray's context dict."""


def class_behind(value: Any) -> type | None:
    """The class Ray copied the methods into, of what ``@ray.remote`` left on the module: attributes set on the
    ``ActorClass`` itself do nothing at all."""
    kind = type(value)
    if kind.__module__ == "ray.actor" or kind.__name__.startswith("ActorClass("):
        cls = getattr(getattr(value, "__ray_metadata__", None), "modified_class", None)
        return cls if isinstance(cls, type) else None
    return None


def refusal(value: Any, owner: Any, attribute: str) -> str | None:
    """Why ``value`` cannot be wrapped where it stands."""
    if class_behind(value) is not None:
        return f"it is an actor class: name its methods, e.g. {attribute}.run or {attribute}.*"
    return None


# -- the context, packed into a call ----------------------------------------------------------------------------------


def packed(kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``kwargs`` of a call with the current context in them; None when there is none to carry."""
    carrier = context.current_carrier()
    if carrier is None:
        return None
    given = kwargs or {}
    # Ray's own context is there already when its OpenTelemetry integration is on
    theirs = given.get(KEYWORD)
    return {**given, KEYWORD: {**(theirs if isinstance(theirs, dict) else {}), OURS: carrier.hex()}}


def unpacked(kwargs: dict[str, Any]) -> bytes | None:
    """Take our carrier out of the ``kwargs`` a call arrived with, and leave Ray's own context in them."""
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

    @functools.wraps(original)
    def _actor_method_call(self: Any, method_name: str, *args: Any, **options: Any) -> Any:
        try:
            if len(args) < 2 and context.current_carrier() is not None and _takes_context(self, method_name):
                options["kwargs"] = packed(options.get("kwargs"))  # Ray never gives kwargs by position
        except Exception as error:
            faults.failed("ray:call", error)
        return original(self, method_name, *args, **options)

    adapting.put(handle, "_actor_method_call", _actor_method_call)


def _takes_context(handle: Any, method_name: str) -> bool:
    """Whether the method's signature has Ray's context keyword (generators and other languages have not)."""
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
    """``inner``, run in the context its caller sent along. ``coroutine``: what it returns is awaited elsewhere."""

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
    """The context belongs to the task that runs the method, which is not the one that makes the coroutine."""
    with context.attach(carrier):
        return await inner(*args, **kwargs)


def _received(kwargs: dict[str, Any]) -> bytes | None:
    try:
        return unpacked(kwargs)
    except Exception as error:
        faults.failed("ray:execute", error)
        return None
