"""Ray: our variables into the workers, and the trace context across actor calls and tasks.

What a spec cannot say: a worker on a running cluster inherits nothing from the driver but ``runtime_env``, and a call
that leaves the process takes its context along only if somebody packs it. Ray has a place for that: it puts the
keyword ``_ray_trace_ctx`` (meant for its OpenTelemetry integration, a dict) into the signature of every actor method,
and its own wrappers ignore the value while that integration is off. Our carrier is one more key of that dict, so a
worker without autotrace never notices it, and Ray's tracing keeps working beside ours.

All of this is private API of Ray (read in 2.44, 2.49 and 2.60): what is not found as expected is left alone and
counted in ``faults``, and the calls go through without context.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from autotrace.adapters.ray import workers
from autotrace.config import environment
from autotrace.record import context, faults
from autotrace.run import remote_node

KEYWORD = "_ray_trace_ctx"
OURS = "autotrace"
"""Our key in Ray's context dict."""
CARRIED = ("MLFLOW_DISABLE_TELEMETRY",)
"""Variables beside ``AUTOTRACE*`` that a traced worker needs; set by the launcher when the user did not."""


_placed: set[Callable[[], None]] = set()


def install() -> None:
    """Wrap ``ray.init``, the two ends of an actor call, and tasks. Called right after ``ray`` was imported;
    idempotent."""
    for place in (_wrap_init, _wrap_actor_call, _wrap_actor_execution, _wrap_task):
        try:
            if place not in _placed:
                place()
                _placed.add(place)
        except Exception as error:
            faults.failed(f"ray:{place.__name__}", error)


# -- variables --------------------------------------------------------------------------------------------------------


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker must have in its environment to trace for the same run. Not the tracking URI: it may hold a
    password, a runtime_env is shown on Ray's pages, and workers talk to no backend."""
    return {
        name: value
        for name, value in environ.items()
        if (name.startswith("AUTOTRACE") and name != environment.TRACKING_URI) or name in CARRIED
    }


def with_variables(runtime_env: Any, environ: Mapping[str, str]) -> Any:
    """A copy of ``runtime_env`` (None, dict or ``RuntimeEnv``) whose ``env_vars`` hold ours too; the user's values win.

    A job's own runtime_env (``ray job submit``) counts as the user's: Ray refuses to start when both name a variable.
    """
    theirs = dict((runtime_env or {}).get("env_vars") or {})
    job = json.loads(environ.get(workers.JOB_CONFIG) or "{}")
    taken = {*theirs, *((job.get("runtime_env") or {}).get("env_vars") or {})}
    ours = {name: value for name, value in variables(environ).items() if name not in taken}
    if not ours:
        return runtime_env
    if runtime_env is None:
        return {"env_vars": ours}
    merged = copy.copy(runtime_env)  # a dict, or Ray's RuntimeEnv, which is one
    merged["env_vars"] = {**theirs, **ours}
    return merged


def _wrap_init() -> None:
    ray = importlib.import_module("ray")
    original = ray.init
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **_with_runtime_env(signature, args, kwargs))

    worker = importlib.import_module("ray._private.worker")
    for module in (ray, worker):
        if getattr(module, "init", None) is original:
            module.init = init  # type: ignore[attr-defined]


def _with_runtime_env(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """``kwargs`` of ``ray.init`` with our variables, or as they were."""
    try:
        if importlib.import_module("ray").is_initialized() or "runtime_env" not in signature.parameters:
            return kwargs
        given = kwargs.get("runtime_env")
        job_config = kwargs.get("job_config")
        if not given and job_config is not None:
            given = job_config.runtime_env or None
        if not given and _starts_a_cluster(args, kwargs):
            return kwargs  # its workers inherit this environment; a runtime_env would make each of them start twice
        # Ray's own daemons were there before us: on other nodes nothing of this run is known but what is said here.
        address = args[0] if args else kwargs.get("address")
        environ = {**os.environ, **remote_node.invite(os.environ, workers.head(address))}
        runtime_env = with_variables(given, environ)
        return {**kwargs, "runtime_env": workers.with_notice(runtime_env, environ, address)}
    except Exception as error:
        faults.failed("ray:init", error)
        return kwargs


def _starts_a_cluster(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this ``ray.init`` will start a cluster of its own, on this machine; False when that cannot be told."""
    address = args[0] if args else kwargs.get("address")
    if address == "local":
        return True
    if address is not None or os.environ.get("RAY_ADDRESS") or workers.JOB_CONFIG in os.environ:
        return False
    services = importlib.import_module("ray._private.services")
    return services.canonicalize_bootstrap_address(None, kwargs.get("_temp_dir")) is None


# -- actor calls ------------------------------------------------------------------------------------------------------


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


def _wrap_actor_call() -> None:
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

    handle._actor_method_call = _actor_method_call


def _takes_context(handle: Any, method_name: str) -> bool:
    """Whether the method's signature has Ray's context keyword (generators and other languages have not)."""
    signature = handle._ray_method_signatures.get(method_name)
    return bool(signature) and any(parameter.name == KEYWORD for parameter in signature)


def _wrap_actor_execution() -> None:
    registry = importlib.import_module("ray._private.function_manager").FunctionActorManager
    original = registry._make_actor_method_executor

    @functools.wraps(original)
    def _make_actor_method_executor(self: Any, method_name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        return executor(original(self, method_name, method, *args, **kwargs), inspect.iscoroutinefunction(method))

    registry._make_actor_method_executor = _make_actor_method_executor


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


# -- tasks ------------------------------------------------------------------------------------------------------------


def _wrap_task() -> None:
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

    remote_function._inject_tracing_into_function = _inject_tracing_into_function  # type: ignore[attr-defined]
    remote_function.RemoteFunction._remote = starting.wrap_auto_init(tracing._tracing_task_invocation(_remote))


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
        known = list(signature.parameters.values())
        place = len(known) - (bool(known) and known[-1].kind is inspect.Parameter.VAR_KEYWORD)
        task.__signature__ = signature.replace(parameters=[*known[:place], added, *known[place:]])  # type: ignore[attr-defined]
    return task
