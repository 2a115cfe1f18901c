"""The program that is being run: what ``__main__`` is called in a list, and the functions of ``python -m pkg.mod``.

Classes of ``__main__`` come through ``__build_class__`` as all others do. Functions do not come at all: ``runpy``
asks the module's loader for its code and runs that itself, so the module is never imported. For ``python -m`` that
code can be had: it is compiled from the source with one more decorator at each ``def`` that a list names, below all
others. The code of ``python script.py`` cannot; such a target is reported as failed, with what to do.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from autotrace.record import faults
from autotrace.run.process import program

MAINS = ("__main__", "__mp_main__")
"""What ``__name__`` is in the program itself, and in a child that ``multiprocessing`` spawned of it."""

on_definition: Callable[[str, FunctionType], Any] | None = None
"""Asked by ``defined``; set by the engine."""


def name_of(module: str) -> str | None:
    """What the program ``module`` (one of ``MAINS``) is called when it is imported: ``pkg.mod`` after ``-m pkg.mod``,
    the script's file name without ``.py``. None for ``-c`` and the prompt."""
    running = sys.modules.get(module)
    spec = getattr(running, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return _stem(getattr(running, "__file__", None))


def script() -> str | None:
    """The name of the script that this process was started with; None after ``-m``, ``-c`` or nothing at all."""
    kind, word = program(sys.orig_argv)
    return _stem(word) if kind == "script" else None


def _stem(path: str | None) -> str | None:
    if path is None or not path.endswith(".py"):
        return None
    return os.path.basename(path)[:-3]


def instrumented(module: str, source: str, path: str, takes: Callable[[str], bool]) -> CodeType:
    """Code of ``module`` in which the top-level functions that ``takes`` wants are passed to ``defined``."""
    tree = ast.parse(source, path)
    for function in _functions(tree.body):
        if takes(function.name):
            text = f"__import__({__name__!r}, None, None, ('defined',)).defined({f'{module}:{function.name}'!r})"
            decorator = ast.parse(text, mode="eval").body
            for node in ast.walk(decorator):
                ast.copy_location(node, function)
            function.decorator_list.append(decorator)
    return compile(tree, path, "exec", dont_inherit=True)


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions at the top level of a module, also inside ``if``, ``try`` and ``with``."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement
        elif not isinstance(statement, ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _functions(handler.body)


def defined(location: str) -> Callable[[Any], Any]:
    """The decorator that ``instrumented`` writes: wraps the function if the engine of this process wants it."""

    def decorator(function: Any) -> Any:
        try:
            if on_definition is not None and type(function) is FunctionType:
                return on_definition(location, function)
        except Exception as error:
            faults.failed("main", error)
        return function

    return decorator
