"""The program that is being run: what ``__main__`` is called in a list, and its functions.

Classes of ``__main__`` come through ``__build_class__`` as all others do. Functions do not come at all, for the
module is never imported: ``runpy`` asks a loader for its code and runs that itself. So its code is compiled from the
source with one more decorator at each ``def`` that a list names, below all others. For ``python -m`` the module's own
loader is asked (``import_hook``), for ``python script.py`` one of ours (``script``).
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

on_definition: Callable[[str, FunctionType], None] | None = None
"""Asked by ``defined``; set by the engine."""


def name_of(module: str) -> str | None:
    """What the program ``module`` (one of ``MAINS``) is called when it is imported: ``pkg.mod`` after ``-m pkg.mod``,
    the script's file name without ``.py``. None for ``-c`` and the prompt."""
    running = sys.modules.get(module)
    spec = getattr(running, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return stem(getattr(running, "__file__", None))


def names_of(module: str, file: str | None) -> tuple[str, ...]:
    """What lists may call the program ``module`` (one of ``MAINS``), part of which stands in ``file``: another program
    may run it, whose name ``name_of`` tells then."""
    own = getattr(sys.modules.get(module), "__file__", None)
    other = stem(file) if file is None or own is None or file != own else None
    return tuple(dict.fromkeys(name for name in (module, name_of(module), other) if name is not None))


def run_by_another() -> list[str]:
    """Scripts on the command line of this process behind its own program (``python -m cProfile train.py``)."""
    words = sys.argv[1:] if getattr(sys, "argv", None) else []
    return [os.path.realpath(word) for word in words if stem(word) is not None and os.path.isfile(word)]


def code() -> str | None:
    """The program after ``python -c``."""
    kind, word = program(sys.orig_argv)
    return word if kind == "c" and not is_spawned() else None


def script() -> str | None:
    """The script that this process was started with; None after ``-m``, ``-c`` or nothing at all."""
    kind, word = program(sys.orig_argv)
    return word if kind == "script" else None


def is_spawned() -> bool:
    """Whether this process was started by ``multiprocessing``, and runs its parent's program as ``__mp_main__``."""
    kind, word = program(sys.orig_argv)
    return kind == "c" and word.startswith("from multiprocessing.")


def stem(path: str | None) -> str | None:
    """What the script at ``path`` is called in lists."""
    if path is None or not path.endswith(".py"):
        return None
    return os.path.basename(path)[:-3]


Takes = Callable[[str], str | None]
"""The place ``module:name`` by which a target names the function of this name; None: no target does."""


def wanted_in(tree: ast.Module, takes: Takes) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The top-level functions of a program that ``takes`` wants."""
    return [function for function in _functions(tree.body) if takes(function.name) is not None]


def instrumented(tree: ast.Module, takes: Takes) -> ast.Module | None:
    """The program, whose top-level functions that ``takes`` wants pass through ``defined``; None: it has none."""
    wanted = wanted_in(tree, takes)
    for function in wanted:
        text = f"__import__({__name__!r}, None, None, ('defined',)).defined({takes(function.name)!r})"
        decorator = ast.parse(text, mode="eval").body
        for node in ast.walk(decorator):
            ast.copy_location(node, function)
        function.decorator_list.append(decorator)
    return tree if wanted else None


def compiled(tree: ast.Module, path: str) -> CodeType:
    """The code of an instrumented program."""
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
    """The decorator that ``instrumented`` writes: shows the function to the engine of this process."""

    def decorator(function: Any) -> Any:
        try:
            if on_definition is not None and type(function) is FunctionType:
                on_definition(location, function)
        except Exception as error:
            faults.failed("main", error)
        return function

    return decorator
