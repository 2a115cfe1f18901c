"""From what stands on a class or module to what shall stand there: descriptors, partials, properties, refusals."""

from __future__ import annotations

import functools
import inspect
import sys
from types import FunctionType
from typing import Any

from autotrace.patch.wrapper import is_wrapper, wrap

SPAWN_TARGETS = frozenset(
    {
        "run_scheduler_process",
        "run_detokenizer_process",
        "run_data_parallel_controller_process",
        "run_engine_core",
        "worker_main",
        "run_busy_loop",
        "event_loop_normal",
        "event_loop_overlap",
    }
)
"""Entry points of child processes and endless loops of vLLM and SGLang: a span there would never end."""


class Refused(Exception):
    """This target is not wrapped; the message says why and what to name instead."""


def rewrap(raw: Any, key: str, owner: Any, attribute: str) -> Any:
    """What replaces ``raw`` (as it stands in ``owner.__dict__``). Raises ``Refused``; returns ``raw`` if it is wrapped."""
    if attribute in SPAWN_TARGETS or attribute.startswith("event_loop_"):
        raise Refused("it is the entry point of a process or an endless loop: its span would never end")
    if isinstance(raw, (staticmethod, classmethod)):
        inner = rewrap(raw.__func__, key, owner, attribute)
        return raw if inner is raw.__func__ else type(raw)(inner)
    if isinstance(raw, property):
        if raw.fget is None:
            raise Refused("the property has no getter")
        getter = rewrap(raw.fget, key, owner, attribute)
        return raw if getter is raw.fget else property(getter, raw.fset, raw.fdel, raw.__doc__)
    if isinstance(raw, functools.cached_property):
        inner = rewrap(raw.func, key, owner, attribute)
        if inner is raw.func:
            return raw
        replaced = functools.cached_property(inner)
        replaced.__set_name__(owner, attribute)
        return replaced
    if isinstance(raw, functools.partialmethod):
        inner = rewrap(raw.func, key, owner, attribute)
        return raw if inner is raw.func else functools.partialmethod(inner, *raw.args, **raw.keywords)
    if isinstance(raw, functools.partial):
        inner = rewrap(raw.func, key, owner, attribute)
        return raw if inner is raw.func else functools.partial(inner, *raw.args, **raw.keywords)
    if type(raw) is FunctionType:
        return _function(raw, key, owner, attribute)
    if inspect.isclass(raw):
        raise Refused(f"it is a class: name its methods, e.g. {attribute}.run or {attribute}.*")
    if inspect.ismodule(raw):
        raise Refused(f"it is a module: name what is in it, or {attribute}.**")
    if inspect.isroutine(raw) or type(raw).__module__ == "functools":
        raise Refused("it is implemented in C: there is nothing to wrap; name the Python function that calls it")
    if inspect.ismethod(raw):
        raise Refused("it is a bound method: name it on its class")
    if callable(raw):
        raise Refused(f"it is an instance: name {type(raw).__module__}.{type(raw).__qualname__}.__call__")
    raise Refused(f"it is not callable ({type(raw).__name__})")


def _function(raw: FunctionType, key: str, owner: Any, attribute: str) -> Any:
    if is_wrapper(raw):
        return raw
    if raw.__globals__.get("__name__") == "verl.utils.ray_utils" and raw.__code__.co_name == "wrapper":
        raise Refused("@auto_await looks at its caller's frame: any wrapper makes `await` raise TypeError")
    torch_nn = sys.modules.get("torch.nn")
    if (
        attribute == "forward"
        and torch_nn is not None
        and inspect.isclass(owner)
        and issubclass(owner, torch_nn.Module)
    ):
        raise Refused(
            "nn.Module.forward runs inside torch.compile and CUDA graphs: name the method that calls the model"
        )
    return wrap(raw, key)


def plain(raw: Any) -> bool:
    """Whether a glob takes ``raw``: functions written in Python, and static and class methods of them."""
    if isinstance(raw, (staticmethod, classmethod)):
        raw = raw.__func__
    return type(raw) is FunctionType
