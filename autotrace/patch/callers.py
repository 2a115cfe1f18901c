"""Whether a function looks at its callers: it would find the wrapper's frame there, so it is not recorded.

``warnings`` and ``logging`` pass over that frame (``record.frames``). Whatever else looks up the stack counts it.
``spec.callers`` judges the same by the source text.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from autotrace.patch.wrapper import original_of
from autotrace.record.object_fields import members_of, mro_of

_COUNTING = frozenset({"_getframe", "_getframemodulename"})
"""What takes the number of frames to go up."""
_ANYWHERE = frozenset({"f_back", "getouterframes", "extract_stack", "format_stack", "print_stack", "walk_stack"})
"""What leads to any frame above."""
_ANY = 1 << 30
_DECORATORS = 3
"""How deep in decorators a function is looked for."""
_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_SKIPPED = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG"})


def looks_at_caller(function: FunctionType, owner: Any = None) -> bool:
    """Whether ``function``, or a function that it calls for that, asks who called it: a function of its module or of
    a module of its package, one in its closure, or a method of ``owner``, if that is its class.

    veRL's ``@auto_await`` does, to decide whether to return a coroutine; with a wrapper in between ``await`` raises.
    structlog's ``tmp_bind``, a context manager, calls a helper that looks at the module two frames up.
    """
    functions = [original_of(function)]
    for level in range(1, _DECORATORS + 1):
        if any(_looks(one, owner, level) or _returns_one(one, owner) for one in functions):
            return True
        functions = [inner for one in functions for inner in _enclosed(one)]
    return False


def _looks(function: FunctionType, owner: Any, level: int) -> bool:
    """Whether ``function`` looks ``level`` frames up, or a function that it calls one more."""
    return _reach(function) >= level or any(_reach(other) > level for other in _called(function, owner))


def _returns_one(function: FunctionType, owner: Any) -> bool:
    """Whether ``function`` may return one that looks at its caller: what a plain function returns to be run later is
    run by a frame of ours."""
    if function.__code__.co_flags & _LATER:
        return False
    return any(_looks(other, owner, 1) for other in _called(function, owner) if other.__code__.co_flags & _LATER)


def _reach(function: FunctionType) -> int:
    """How many frames above its own ``function`` looks at, as far as its names and constants show."""
    names = function.__code__.co_names
    if not _ANYWHERE.isdisjoint(names):
        return _ANY
    if "stack" in names and ("inspect" in names or function.__globals__.get("stack") is inspect.stack):
        return _ANY
    return 0 if _COUNTING.isdisjoint(names) else max(_counted(function.__code__), default=0)


def _counted(code: CodeType) -> Iterator[int]:
    """What ``code`` passes to ``_COUNTING``; ``_ANY`` where that is computed."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _SKIPPED]
    for at, step in enumerate(steps):
        if step.opname != "LOAD_CONST" and step.argval in _COUNTING:
            first, second = steps[at + 1], steps[min(at + 2, len(steps) - 1)]
            if first.opname.startswith("CALL"):
                yield 0
            elif type(first.argval) is int and first.opname.startswith("LOAD_") and second.opname.startswith("CALL"):
                yield first.argval
            else:
                yield _ANY


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
