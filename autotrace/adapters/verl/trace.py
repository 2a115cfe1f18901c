"""Keep veRL's own extension points for tracing alive.

A function that a user decorated with ``rollout_trace_op`` becomes a span. A ``rollout_trace_attr`` block outside veRL's
agent-loop worker becomes the root of a trajectory. Both are in ``verl.utils.rollout_trace`` (0.5.0 to 0.9.1) and do
nothing while veRL's backend is unset, which ``adapters.verl.agent_loop`` ensures. veRL's own functions carry the
decorator, too, and are all in the spec. A user's agent loops and tools may be in both, and are recorded once, by the
spec.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from autotrace.patch import adapting, engine, wrapper
from autotrace.record import calls, context, faults

BLOCK = "verl.utils.rollout_trace.rollout_trace_attr"
"""Target key of the blocks."""
IDENTITY = ("step", "sample_index", "rollout_n", "validate", "experiment_name", "project_name")


def install() -> None:
    """Register the hook on the module. Called once, right after ``verl`` was imported."""
    adapting.when_imported("verl.utils.rollout_trace", _watch)


def _watch(module: ModuleType) -> None:
    decorate = module.rollout_trace_op
    enter = module.rollout_trace_attr
    signature = inspect.signature(enter)

    @functools.wraps(decorate)
    def rollout_trace_op(func: Any) -> Any:
        made = decorate(func)
        try:
            return recorded(made, func)
        except Exception as error:
            faults.failed("verl:rollout_trace_op", error)
            return made

    @functools.wraps(enter)
    def rollout_trace_attr(*args: Any, **kwargs: Any) -> Any:
        manager = enter(*args, **kwargs)
        try:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return _block(manager, given.arguments, module.RolloutTraceConfig.get_instance())
        except Exception as error:
            faults.failed("verl:rollout_trace_attr", error)
            return manager

    adapting.put(module, "rollout_trace_op", rollout_trace_op)
    adapting.put(module, "rollout_trace_attr", rollout_trace_attr)


# -- rollout_trace_op --------------------------------------------------------------------------------------------------


def recorded(made: Callable[..., Any], func: Any) -> Callable[..., Any]:
    """Return ``made`` (veRL's wrapper of ``func``) with its calls recorded, unless its class's target records the
    calls.

    The patch engine does not take the returned function for a recorded function. If the spec names the function, the
    engine records the function and opens the span with the spec's role, and the layer here passes through.
    """
    key = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', '')}"
    if type(func) is not FunctionType or key in calls.probes or key.startswith("verl."):
        return made
    inner: Any = wrapper.copied(made)  # type: ignore[arg-type]
    engine.record_function(inner, key=key, name=func.__qualname__, exclude=("agent_data",), subclasses=True)

    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
            chosen = made if _is_recorded(self, key) else inner
            return await chosen(self, *args, **kwargs)

        return operation

    @functools.wraps(func)
    def plain_operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = made if _is_recorded(self, key) else inner
        return chosen(self, *args, **kwargs)

    return plain_operation


def _is_recorded(owner: Any, key: str) -> bool:
    """Tell whether the current span is of this very call: the same method of the same object, under another key.

    The other key is the spec's, or the key of an override that called ``super()``.
    """
    try:
        calls = sys.modules.get("autotrace.record.calls")
        return calls is not None and bool(calls.recording(owner, key.rpartition(".")[2], key))
    except Exception as error:
        faults.failed("verl:rollout_trace_op", error)
        return False


# -- rollout_trace_attr ------------------------------------------------------------------------------------------------


def _block(manager: Any, given: dict[str, Any], config: Any) -> Any:
    """Return the replacement of ``manager``: a root, a block that records nothing, or, inside a trajectory,
    ``manager``.

    veRL's own worker enters a block inside the root that the spec records, with ``trace=False`` for every rollout of
    the V1 path. Sampling is ours (``record.sampling``), so ``trace`` means nothing there.
    """
    call = context.current_call()
    if call is not None and (call.probe is None or call.probe.role != "trainer"):
        return manager
    if not given.get("trace", True):
        return _silent(manager)
    identity = {name: given.get(name, getattr(config, name, None)) for name in IDENTITY}
    present = {name: value for name, value in identity.items() if value is not None}
    return _root(manager, str(given.get("name") or "rollout_trace"), present)


@contextlib.contextmanager
def _silent(manager: Any) -> Iterator[Any]:
    with context.made_current(context.stand_in(b"", 0, recorded=False)), manager as entered:
        yield entered


@contextlib.contextmanager
def _root(manager: Any, name: str, identity: dict[str, Any]) -> Iterator[Any]:
    call = calls.begin(_named(name, context.epoch), BLOCK, (), identity)
    try:
        with manager as entered:
            yield entered
    except BaseException as error:
        if call is not None:
            calls.fail(call, error)
        raise
    if call is not None:
        calls.end(call, None)


@functools.lru_cache(maxsize=256)
def _named(name: str, epoch: int) -> Any:
    """Build a function that is called like the block: the span's name is the function's qualified name. Each epoch has
    another function, because recording ends with the run."""

    def block(**identity: Any) -> None:
        """Replace the body of the ``with``."""

    block.__name__ = block.__qualname__ = name
    paths = {name: (name,) for name in IDENTITY}
    engine.record_function(block, key=BLOCK, role="trajectory", include=(), attributes=paths)
    return block
