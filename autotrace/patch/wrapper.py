"""The functions left behind on classes and modules: plain, of the same kind as the original, holding it and a key only.

Each closes over the original, a string and ``sys``, and finds the runtime by name at call time, so that it can be
pickled by value into a process without autotrace (there it passes through), survives ``copy.deepcopy``, ``ray.remote``
and every start method, and differs from the original only in ``__wrapped__`` and the file of its code. Its
globals are the original's (doctest and ``get_type_hints`` look at them). A ``wrapt.FunctionWrapper`` is lost silently
in Ray actors: cloudpickle takes the proxy for a function and serialises the inner one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakValueDictionary

from autotrace.record import template
from autotrace.record.arguments import described

Function = Callable[..., Any]

_made: WeakValueDictionary[tuple[int, str], FunctionType] = WeakValueDictionary()
"""(id of the original, key) -> its wrapper, which keeps the original alive: two names of one function stay one."""


def _nothing() -> Any:
    yield


_OF_CONTEXTLIB = (contextlib.contextmanager(_nothing).__code__, contextlib.asynccontextmanager(_nothing).__code__)
"""Code of what these two decorators leave behind; it makes a context manager of the generator in its closure."""


def wrap(function: Function, key: str) -> Function:
    """A function of the same kind as ``function`` that records its calls for the target ``key``."""
    assert type(function) is FunctionType
    wrapper = _made.get((id(function), key))
    if wrapper is None:
        inner = _managed(function)
        wrapper = _wrapped(function, key) if inner is None else _manager(function, inner, key)
        _made[id(function), key] = wrapper
    return wrapper


def _wrapped(function: FunctionType, key: str, managed: bool = False) -> FunctionType:
    code = template.code_for(function.__code__, managed)
    wrapper = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, _closure(code, function, key)
    )
    if function.__kwdefaults__:
        wrapper.__kwdefaults__ = dict(function.__kwdefaults__)
    functools.update_wrapper(wrapper, function)
    return wrapper


def _manager(function: FunctionType, inner: FunctionType, key: str) -> FunctionType:
    """What ``contextlib`` would have left behind, had it been given a wrapper of ``inner``: so a call begins whenever a
    ``with`` is entered, also where the context manager is used as a decorator."""
    known_as = function.__dict__.get("__wrapped__", inner)
    if known_as is not inner:
        described[inner] = known_as
    wrapper = _wrapped(inner, key, managed=True)
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, (CellType(wrapper),)
    )
    functools.update_wrapper(made, function).__wrapped__ = wrapper if known_as is inner else known_as
    return made


def _managed(function: Any) -> FunctionType | None:
    """The generator function that ``contextlib`` made ``function`` of; None for any other function."""
    if type(function) is not FunctionType or function.__code__ not in _OF_CONTEXTLIB or not function.__closure__:
        return None
    inner = function.__closure__[0].cell_contents
    generators = (template.GENERATOR, template.ASYNC_GENERATOR)
    return inner if type(inner) is FunctionType and template.kind_of(inner.__code__) in generators else None


def _closure(code: CodeType, function: FunctionType, key: str) -> tuple[CellType, ...]:
    cells = {
        template.FUNCTION: CellType(function),
        template.KEY: CellType(key),
        template.SYS: CellType(sys),
        **dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)),
    }
    return tuple(cells[name] for name in code.co_freevars)


def key_of(function: Any) -> str | None:
    """The key ``function`` was wrapped for; None for anything that is not a wrapper."""
    function = _managed(function) or function
    if not is_wrapper(function):
        return None
    return str(function.__closure__[function.__code__.co_freevars.index(template.KEY)].cell_contents)


def is_wrapper(function: Any) -> bool:
    """Whether ``function`` is a wrapper itself (a decorator above one copies its ``__dict__``, but not its code)."""
    function = _managed(function) or function
    return type(function) is FunctionType and template.KEY in function.__code__.co_freevars
