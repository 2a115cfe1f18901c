"""Whether a function looks at its callers: it would find the wrapper's frame there, so it is not recorded.

``warnings`` and ``logging`` pass over that frame (``record.frames``). Whatever else looks up the stack counts it.
``spec.describe`` asks the same of code that it compiles from source text.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from autotrace.patch.reach import LATER, LOOKED_PAST, reach
from autotrace.patch.wrapper import original_of
from autotrace.record.object_fields import members_of, mro_of

_DECORATORS = 3
"""How deep in decorators a function is looked for."""


def looks_at_caller(function: FunctionType, owner: Any = None) -> bool:
    """Whether ``function``, or a function that it calls for that, asks who called it: a function of its module or of
    a module of its package, one in its closure, or a method of ``owner``, if that is its class.

    veRL's ``@auto_await`` does, to decide whether to return a coroutine; with a wrapper in between ``await`` raises.
    structlog's ``tmp_bind``, a context manager, calls a helper that looks at the module two frames up.
    """
    functions = [original_of(function)]
    for level in range(1, _DECORATORS + 1):
        if any(_looks(one, owner, level) for one in functions):
            return True
        functions = [inner for one in functions for inner in _enclosed(one)]
    return False


def _looks(function: FunctionType, owner: Any, level: int) -> bool:
    """Whether ``function`` looks ``level`` frames up, or a function that it calls one more. What a plain function
    returns to be run later is run by a frame of ours, and must not look at its caller."""
    plain = not function.__code__.co_flags & LATER
    return _reach_of(function) >= level or any(
        _reach_of(other) > level or (plain and other.__code__.co_flags & LATER and _looks(other, owner, 1))
        for other in _called(function, owner)
    )


def _reach_of(function: FunctionType) -> int:
    if f"{function.__module__}.{function.__qualname__}" in LOOKED_PAST:
        return 0
    return reach(function.__code__, function.__globals__.get("stack") is inspect.stack)


def _called(function: FunctionType, owner: Any) -> Iterator[FunctionType]:
    """Functions that ``function`` may call, by the names in its code."""
    names = set(function.__code__.co_names)
    globals_ = function.__globals__
    found = [globals_[name] for name in names & globals_.keys()]
    for module in [value for value in found if issubclass(type(value), ModuleType)]:
        inside = object.__getattribute__(module, "__dict__")
        if _package(inside) == _package(globals_):
            found += [inside[name] for name in names & inside.keys()]
    for above in mro_of(owner) if issubclass(type(owner), type) else ():
        found += [members_of(above)[name] for name in names & members_of(above).keys()]
        names -= members_of(above).keys()
    for value in found:
        value = value.__func__ if type(value) in (staticmethod, classmethod) else value
        if type(value) is FunctionType:
            yield original_of(value)


def _package(namespace: dict[str, Any]) -> str:
    return str(namespace.get("__name__")).partition(".")[0]


def _enclosed(function: FunctionType) -> Iterator[FunctionType]:
    """Functions in the closure of ``function``: a decorator's has what it decorates there."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            if type(cell.cell_contents) is FunctionType:
                yield original_of(cell.cell_contents)
