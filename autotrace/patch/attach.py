"""From what stands on a class or module to the function whose calls are recorded: holders are opened. What cannot be
recorded is refused with a reason."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from autotrace.patch import adapting, wrapper
from autotrace.patch.callers import looks_at_caller
from autotrace.record import used_libraries
from autotrace.record.object_fields import attribute_of, members_of, name_of

IN_PLACE, OVERRIDDEN, REPLACED = "in place", "overridden", "replaced"
"""How a target is held: whoever has the function calls the wrapper; a subclass got a function of its own; who uses this
name alone calls the wrapper."""

_ROUTINES = (functools.cached_property, functools.partial, functools.partialmethod)
_LAYERS = 16
"""Decorators of one function that are looked below."""
_LOOKED_AT = 500
"""Objects inside of a holder that are looked at for a definition."""


class Refused(Exception):
    """This target is not recorded; the message says why and what to name instead."""


def attach(owner: Any, attribute: str, key: str, depth: int = 0) -> str | None:
    """Have the calls of ``owner.attribute``, or of the function below ``depth`` decorators of it, recorded for the
    target ``key``; says how. None: they are recorded for some target already. Raises ``Refused``."""
    raw, own = member(owner, attribute), attribute in vars(owner)
    reason = adapting.refusal(raw, owner, attribute) or used_libraries.refusal(adapting.module_of(None, owner))
    if reason is not None:
        raise Refused(reason)
    function = function_in(raw, owner, attribute, depth)
    if function is None:
        raise Refused(_why_not(raw, attribute, depth))
    layers = [*_layers(function)]
    # Ray decorates every method of an actor's class, which was created before
    if wrapper.key_of(function) is not None or any(wrapper.key_of(layer) == key for layer in layers):
        return None
    where = ", below its decorator" if depth else ""
    if looks_at_caller(function, owner):
        # a decorator's frame is where it was, above the wrapper's
        function = next((layer for layer in layers[1:] if not looks_at_caller(layer, owner)), None)
        if function is None:
            raise Refused("it looks at its caller's frame and would find the wrapper's: name a function that it calls")
        if wrapper.key_of(function) is not None:
            return None
        where = ", below a decorator that looks at its caller's frame"
    # what a module of the user's took from such a library is replaced there, which changes nothing in the library
    if own and used_libraries.refusal(function.__module__ or "") is None:
        wrapper.place(function, key)
        if type(raw).__name__ == "_lru_cache_wrapper":
            where = ", below functools.lru_cache: calls that it computes"
        return IN_PLACE + where
    if where:
        raise Refused("below a decorator, a function is recorded in place alone: name it on the class that has it")
    adapting.put(owner, attribute, _with(raw, wrapper.wrap(function, key)))
    return REPLACED if own else OVERRIDDEN


def member(owner: Any, name: str) -> Any:
    """``owner.name`` without triggering descriptors or a module's lazy attributes; None when there is none."""
    if issubclass(type(owner), ModuleType):  # ``isinstance`` asks what is no module for its ``__class__``
        return vars(owner).get(name)
    return attribute_of(owner, name)


def _layers(function: Any) -> Iterator[FunctionType]:
    """``function``, and those below it as far as decorators say so (``functools.wraps``)."""
    for _ in range(_LAYERS):
        if type(function) is not FunctionType:
            return
        yield function
        function = function.__dict__.get("__wrapped__")


def function_in(raw: Any, owner: Any, attribute: str, depth: int = 0) -> FunctionType | None:
    """The function that is called when ``raw`` (of ``owner.attribute``) is: itself, or what a descriptor, a partial, a
    cache or the object of some library holds; then the one below ``depth`` decorators of it. A cache counts as one.
    None if it does not exist."""
    while True:
        kind = type(raw)
        if kind is FunctionType:
            if depth == 0:
                return raw  # type: ignore[no-any-return]
            raw, depth = raw.__dict__.get("__wrapped__"), depth - 1
        elif isinstance(raw, (staticmethod, classmethod)) or kind is MethodType:
            raw = raw.__func__
        elif isinstance(raw, property):
            raw = raw.fget
        elif kind in _ROUTINES:
            raw = raw.func
        elif kind.__name__ == "_lru_cache_wrapper":
            raw, depth = raw.__wrapped__, max(depth - 1, 0)
        elif raw is None or issubclass(kind, (type, ModuleType)):
            return None
        else:
            raw = _definition_in(raw, owner, attribute)


def _definition_in(holder: Any, owner: Any, attribute: str) -> FunctionType | None:
    """The function whose ``def`` stands where ``holder`` does: a decorator made an object of it (a command, a tool, a
    remote function), and it is somewhere inside. Nothing of the holder's is called: the garbage collector knows what an
    object refers to."""
    of_class = isinstance(owner, type)
    module = getattr(owner, "__module__" if of_class else "__name__", None)
    qualname = f"{name_of(owner)}.{attribute}" if of_class else attribute
    seen, waiting = {id(holder)}, [holder]
    if "<locals>" in name_of(type(holder)):  # a class that the decorator made for this one
        waiting.append(type(holder))
    for value in waiting:
        if type(value) is FunctionType and value.__qualname__ == qualname and value.__module__ == module:
            return next(layer for layer in [*_layers(value)][::-1] if layer.__qualname__ == qualname)
        if adapting.refusal(value, owner, attribute) is not None:
            continue
        inside = [value.__closure__, value.__dict__] if type(value) is FunctionType else gc.get_referents(value)
        for one in inside:
            if len(seen) < _LOOKED_AT and id(one) not in seen and _may_hold(one):
                seen.add(id(one))
                waiting.append(one)
    return None


def _may_hold(value: Any) -> bool:
    kind = type(value)
    return not issubclass(kind, (type, ModuleType, str)) and not (kind is dict and "__builtins__" in value)


def recorded_for(owner: Any, attribute: str) -> str | None:
    """Key of the target that ``owner.attribute`` records already."""
    return wrapper.key_of(function_in(member(owner, attribute), owner, attribute))


def instance_with_call(owner: Any, attribute: str) -> type | None:
    """The class of a callable instance that stands in a module, and that no ``def`` stands behind: its ``__call__`` is
    what can be recorded."""
    raw = vars(owner).get(attribute) if isinstance(owner, ModuleType) else None
    call = members_of(type(raw)).get("__call__")
    alone = type(call) is FunctionType and function_in(raw, owner, attribute) is None
    return type(raw) if alone and adapting.refusal(raw, owner, attribute) is None else None


def _with(raw: Any, made: FunctionType) -> Any:
    """A holder like ``raw``, of the function ``made``."""
    if isinstance(raw, (staticmethod, classmethod)):
        return type(raw)(made)
    if isinstance(raw, property):
        return raw.getter(made)
    if type(raw) is FunctionType:
        return made
    raise Refused(f"it is a {type(raw).__name__} that stands elsewhere: name it there")


def _why_not(raw: Any, attribute: str, depth: int) -> str:
    if depth:
        what = f"`{attribute}{'.__wrapped__' * (depth - 1)}`"
        return f"{what} has no `__wrapped__`: it has no decorator, or one that does not use functools.wraps"
    if isinstance(raw, property):
        return "the property has no getter"
    if inspect.isclass(raw):
        return f"it is a class: name its methods, e.g. {attribute}.run or {attribute}.*"
    if inspect.ismodule(raw):
        return f"it is a module: name what is in it, or {attribute}.**"
    if inspect.isroutine(raw):
        return "it is implemented in C: there is nothing to wrap; name the Python function that calls it"
    if hasattr(raw, "__get__"):
        return f"it is a descriptor of its own kind ({type(raw).__qualname__}): name a function it calls"
    if callable(raw):
        return f"it is an instance: name {type(raw).__module__}.{type(raw).__qualname__}.__call__"
    return f"it is not callable ({type(raw).__name__})"
