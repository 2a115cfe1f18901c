"""The functions left behind on classes and modules: plain, of the same kind as the original, holding it and a key only.

Each closes over the original, a string and ``sys``, and finds the runtime by name at call time, so that it can be
pickled by value into a process without autotrace (there it passes through), survives ``copy.deepcopy``, ``ray.remote``
and every start method, and differs from the original only in ``__wrapped__`` and the file of its code. Its
globals are the original's (doctest and ``get_type_hints`` look at them). A ``wrapt.FunctionWrapper`` is lost silently
in Ray actors: cloudpickle takes the proxy for a function and serialises the inner one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakValueDictionary

from autotrace.record import template

Function = Callable[..., Any]

_made: WeakValueDictionary[tuple[int, str], FunctionType] = WeakValueDictionary()
"""(id of the original, key) -> its wrapper, which keeps the original alive: two names of one function stay one."""


def wrap(function: Function, key: str) -> Function:
    """A function of the same kind as ``function`` that records its calls for the target ``key``."""
    assert type(function) is FunctionType
    wrapper = _made.get((id(function), key))
    if wrapper is not None:
        return wrapper
    code = template.code_for(function.__code__)
    wrapper = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, _closure(code, function, key)
    )
    if function.__kwdefaults__:
        wrapper.__kwdefaults__ = dict(function.__kwdefaults__)
    functools.update_wrapper(wrapper, function)
    _made[id(function), key] = wrapper
    return wrapper


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
    if not is_wrapper(function):
        return None
    return str(function.__closure__[function.__code__.co_freevars.index(template.KEY)].cell_contents)


def is_wrapper(function: Any) -> bool:
    """Whether ``function`` is a wrapper itself (a decorator above one copies its ``__dict__``, but not its code)."""
    return type(function) is FunctionType and template.KEY in function.__code__.co_freevars
