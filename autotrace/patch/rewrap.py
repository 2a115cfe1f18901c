"""From what stands on a class or module to what shall stand there: descriptors, partials, properties, refusals."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType, ModuleType
from typing import Any

from autotrace.patch import library_rules
from autotrace.patch.callers import looks_at_caller
from autotrace.patch.wrapper import is_wrapper, key_of, wrap
from autotrace.record import used_libraries


class Refused(Exception):
    """This target is not wrapped; the message says why and what to name instead."""


def rewrap(raw: Any, key: str, owner: Any, attribute: str) -> Any:
    """What replaces ``raw`` (of ``owner.__dict__``); ``raw`` itself if it is wrapped. Raises ``Refused``."""
    reason = _used_by_recording(owner) or library_rules.refusal(raw, owner, attribute)
    if reason is not None:
        raise Refused(reason)
    if isinstance(raw, (staticmethod, classmethod)):
        inner = rewrap(raw.__func__, key, owner, attribute)
        return raw if inner is raw.__func__ else type(raw)(inner)
    if isinstance(raw, property):
        if raw.fget is None:
            raise Refused("the property has no getter")
        getter = rewrap(raw.fget, key, owner, attribute)
        return raw if getter is raw.fget else raw.getter(getter)
    if type(raw) in (functools.cached_property, functools.partial, functools.partialmethod):
        inner = rewrap(raw.func, key, owner, attribute)
        return raw if inner is raw.func else _rebuilt(raw, inner, owner, attribute)
    if type(raw) is FunctionType:
        return raw if is_wrapper(raw) else _function(raw, key, owner, attribute)
    if inspect.isclass(raw):
        raise Refused(f"it is a class: name its methods, e.g. {attribute}.run or {attribute}.*")
    if inspect.ismodule(raw):
        raise Refused(f"it is a module: name what is in it, or {attribute}.**")
    if type(raw).__name__ == "_lru_cache_wrapper":
        raise Refused("it is behind functools.lru_cache, which answers most calls itself: name a function it calls")
    if inspect.isroutine(raw):
        raise Refused("it is implemented in C: there is nothing to wrap; name the Python function that calls it")
    if inspect.ismethod(raw):
        raise Refused("it is a bound method: name it on its class")
    if hasattr(raw, "__get__"):
        raise Refused(f"it is a descriptor of its own kind ({type(raw).__qualname__}): name a function it calls")
    if callable(raw):
        raise Refused(f"it is an instance: name {type(raw).__module__}.{type(raw).__qualname__}.__call__")
    raise Refused(f"it is not callable ({type(raw).__name__})")


def _used_by_recording(owner: Any) -> str | None:
    """Asks where the name stands, not where the function comes from: to wrap what a module or class of the user's took
    from such a library changes nothing in the library."""
    module = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    return used_libraries.refusal(module) if type(module) is str else None


def _rebuilt(raw: Any, inner: Any, owner: Any, attribute: str) -> Any:
    """A ``cached_property``, ``partial`` or ``partialmethod`` like ``raw``, of the function ``inner``."""
    if type(raw) is functools.cached_property:
        made: Any = functools.cached_property(inner)
        made.__set_name__(owner, attribute)
        return made
    made = type(raw)(inner, *raw.args, **raw.keywords)
    made.__dict__.update({name: value for name, value in raw.__dict__.items() if name not in made.__dict__})
    return made


def _function(raw: FunctionType, key: str, owner: Any, attribute: str) -> Any:
    if _records_inside(raw, key):
        return raw
    if looks_at_caller(raw, owner):
        raise Refused("it looks at its caller's frame and would find the wrapper's: name a function that it calls")
    return wrap(raw, key)


def _records_inside(function: FunctionType, key: str) -> bool:
    """Whether ``function`` is a decorator's around a wrapper for ``key``: a method that was wrapped when its class was
    created and then decorated with the class (Ray does that to every method of an actor)."""
    inner: Any = function
    for _ in range(16):
        inner = getattr(inner, "__wrapped__", None)
        if inner is None:
            return False
        if key_of(inner) == key:
            return True
    return False


def recorded_for(raw: Any) -> str | None:
    """Key of the target that ``raw`` (as it stands in a ``__dict__``) records already."""
    while type(raw) is not FunctionType:
        if isinstance(raw, (staticmethod, classmethod)):
            raw = raw.__func__
        elif isinstance(raw, property):
            raw = raw.fget
        elif type(raw) in (functools.cached_property, functools.partial, functools.partialmethod):
            raw = raw.func
        else:
            return None
    return key_of(raw)


def instance_with_call(owner: Any, attribute: str) -> type | None:
    """The class of a callable instance that stands in a module: its ``__call__`` is what can be wrapped."""
    raw = vars(owner).get(attribute) if isinstance(owner, ModuleType) else None
    call = type(raw).__dict__.get("__call__")
    return type(raw) if type(call) is FunctionType and type(raw).__module__ != "functools" else None
