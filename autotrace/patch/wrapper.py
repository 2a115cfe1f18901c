"""Make functions record their calls: a function gets another code, and stays the same object.

Every holder of the function (a registry, a partial, a bound method, a module that imported the function early) calls
the wrapper, and ``is``, ``pickle`` and ``multiprocessing`` see the same objects as before. ``record.template`` builds
the code of a wrapper and its constants.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import linecache
import os
import sys
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakValueDictionary

from autotrace.record import faults, swallowed, template
from autotrace.record.arguments import described

_placed: WeakValueDictionary[FunctionType, FunctionType] = WeakValueDictionary()
"""Map the originals of this process to the functions that have another code. A thread may add while another one
looks: ``valuerefs`` and ``get`` are single steps."""


def place(function: FunctionType, key: str) -> None:
    """Record the calls of ``function`` for the target ``key``. A function that ``contextlib`` turned into a context
    manager stays unchanged; the generator inside is placed instead."""
    inner = _managed(function)
    target = inner or function
    target.__code__ = original_code(target.__code__)  # the function may have been watched so far
    original = _twin(target)
    if inner is not None and (known_as := function.__dict__.get("__wrapped__", inner)) is not inner:
        described[original] = known_as
    _give(target, key, original, inner is not None)
    _placed[original] = target


def watch(function: FunctionType) -> None:
    """Note exceptions of ``function`` in the recorded call around the function (``record.swallowed``)."""
    original = _twin(function)
    _give(function, template.WATCHED, original, False)
    _placed[original] = function


def arm(original: FunctionType) -> None:
    """Make the watched function with the code of ``original`` also report a return, after the function raised."""
    function = _placed.get(original)
    mark = None if function is None else _mark(function.__code__)
    if function is not None and mark is not None and mark[1] == template.WATCHED and mark[2] is original:
        _give(function, template.ARMED, original, False)


swallowed.arm = arm


def placed_of(original: FunctionType) -> FunctionType | None:
    """Return the function whose original is ``original``."""
    function = _placed.get(original)
    mark = None if function is None else _mark(function.__code__)
    return function if mark is not None and mark[2] is original else None


def copied(function: FunctionType) -> FunctionType:
    """Copy ``function`` for a place where ``function`` itself must not be recorded: the subclass that inherits the
    function, or a module that took the function from a library that recording uses."""
    inner, closure = _managed(function), function.__closure__
    if inner is not None:
        again = copied(inner)
        closure = (CellType(again),)
    made = _like(function, function.__globals__, closure)
    functools.update_wrapper(made, function)
    made.__dict__ = dict(function.__dict__)  # which the line above gave a `__wrapped__`
    if inner is not None and made.__dict__.get("__wrapped__") is inner:
        made.__dict__["__wrapped__"] = again
    return made


def bare(function: FunctionType) -> FunctionType:
    """Copy a recorded ``function`` with the original's code, for a compiler that reads the code."""
    made = copied(function)
    made.__code__ = original_of(function).__code__
    return made


def wrap(function: FunctionType, key: str) -> FunctionType:
    """Copy ``function`` and record the copy's calls for the target ``key``."""
    made = copied(function)
    place(made, key)
    return made


def _like(function: FunctionType, names: dict[str, Any], closure: tuple[CellType, ...] | None) -> FunctionType:
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = dict(function.__kwdefaults__) if function.__kwdefaults__ else None
    return made


def _twin(function: FunctionType) -> FunctionType:
    """Copy ``function`` with its code; the wrapper calls the copy.

    No garbage collector looks into a code, so a code must not hold the references of a function made in a function. The
    copy of such a function has no globals and empty cells, and the wrapper builds the function to call.
    """
    module = sys.modules.get(function.__module__ or "")
    local = "<locals>" in function.__qualname__
    if local and (function.__closure__ or getattr(module, "__dict__", None) is not function.__globals__):
        made = _like(function, {}, tuple(CellType() for _ in function.__code__.co_freevars))
    else:
        made = _like(function, function.__globals__, function.__closure__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    below = function.__dict__.get("__wrapped__")
    if type(below) is FunctionType:
        made.__dict__["__wrapped__"] = _twin(below) if local else below
    return made


def _give(function: FunctionType, key: str, original: FunctionType, managed: bool) -> None:
    apart = original.__globals__ is not function.__globals__
    guarded = hasattr(builtins, template.COMPILING)
    function.__code__ = template.code_for(original, key, managed, apart, guarded)
    file = original.__code__.co_filename
    if not os.path.isfile(file):  # the path of the code leads to no readable file
        linecache.getlines(file, function.__globals__)
        if file in linecache.cache:
            linecache.cache.setdefault(function.__code__.co_filename, linecache.cache[file])


def guard() -> None:
    """Rebuild the placed code, which then asks ``template.COMPILING`` too, from now on."""
    for function in _living():
        marked = _mark(function.__code__)
        if marked is not None:
            _give(function, *marked[1:])


def _living() -> list[FunctionType]:
    return [function for one in _placed.valuerefs() if (function := one()) is not None]


def restore() -> None:
    """Restore every function's own code. A code that somebody else exchanged meanwhile is left alone, and passes calls
    through."""
    for function in _living():
        marked = _mark(function.__code__)
        try:
            if marked is not None:
                linecache.cache.pop(function.__code__.co_filename, None)
                function.__code__ = marked[2].__code__
        except Exception as error:
            faults.failed("restore", error)
    _placed.clear()


def key_of(function: Any) -> str | None:
    """Return the key for which the calls of ``function`` are recorded; None for anything else."""
    if type(function) is not FunctionType:
        return None
    marked = _mark((_managed(function) or function).__code__)
    return None if marked is None or marked[1] in (template.WATCHED, template.ARMED) else marked[1]


def original_of(function: FunctionType) -> FunctionType:
    """Return the function with the code that runs when ``function`` is called, for a reader of the code: without
    autotrace's code, and without the code that ``contextlib`` put around a generator."""
    function = _managed(function) or function
    marked = _mark(function.__code__)
    return function if marked is None else marked[2]


def original_code(code: CodeType) -> CodeType:
    """Return the original code behind ``code`` of a recorded function; any other code unchanged."""
    marked = _mark(code)
    return code if marked is None else marked[2].__code__


def _mark(code: CodeType) -> tuple[str, str, FunctionType, bool] | None:
    last = code.co_consts[-1] if code.co_consts else None
    return last if type(last) is tuple and len(last) == 4 and last[0] == template.MARK else None


def _nothing() -> Any:
    yield


_OF_CONTEXTLIB = (contextlib.contextmanager(_nothing).__code__, contextlib.asynccontextmanager(_nothing).__code__)
"""List the code that these two decorators leave; the code turns the generator in its closure into a context manager."""


def _managed(function: FunctionType) -> FunctionType | None:
    """Return the generator function that ``contextlib`` turned into ``function``; None for any other function."""
    if function.__code__ not in _OF_CONTEXTLIB or not function.__closure__:
        return None
    inner = function.__closure__[0].cell_contents
    generators = (template.GENERATOR, template.ASYNC_GENERATOR)
    return inner if type(inner) is FunctionType and template.kind_of(inner.__code__) in generators else None
