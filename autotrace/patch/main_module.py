"""The program that is being run: what ``__main__`` is called in a list, and its functions.

Classes of ``__main__`` come through ``__build_class__`` as all others do. Functions do not come at all, for the
module is never imported: ``runpy`` asks a loader for its code and runs that itself. So its code is compiled from the
source with one more decorator at each ``def`` that a list names, below all others. For ``python -m`` the module's own
loader is asked (``import_hook``), for ``python script.py`` one of ours (``script``).
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from autotrace.record import faults
from autotrace.run.process import arguments, program

MAINS = ("__main__", "__mp_main__")
"""What ``__name__`` is in the program itself, and in a child that ``multiprocessing`` spawned of it."""

_MODULE = ("-m", "--module")

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
    """What lists may call the program ``module`` (one of ``MAINS``), part of which stands in ``file``."""
    other = None if file is None else run_by_another(file)
    return tuple(dict.fromkeys(name for name in (module, name_of(module), other) if name is not None))


def run_by_another(file: str) -> str | None:
    """What lists call the program in ``file``, if it is on the command line behind this process's own program
    (``python -m cProfile train.py``, ``coverage run -m pkg.mod``)."""
    path = os.path.realpath(file)
    return next((name for ending, name in others().items() if path.endswith(ending)), None)


@functools.lru_cache(maxsize=1)
def others() -> dict[str, str]:
    """Such programs: how the path of the file ends, and the name in lists."""
    found: dict[str, str] = {}
    words = arguments(sys.orig_argv)
    for before, word in zip(["", *words], words, strict=False):
        name = stem(word)
        if before in _MODULE:
            found.update((f"{os.sep}{module.replace('.', os.sep)}.py", module) for module in (word, f"{word}.__main__"))
        elif name is not None and os.path.isfile(word):
            found[os.path.realpath(word)] = name
    return found


@functools.lru_cache(maxsize=1)
def modules() -> set[str]:
    """Modules that this process was started with, or that another program runs in it: ``runpy`` asks for their code."""
    kind, word = program(sys.orig_argv)
    words = arguments(sys.orig_argv)
    named = {word} if kind == "m" else set()
    named.update(word for before, word in itertools.pairwise(words) if before in _MODULE)
    return {*named, *(f"{name}.__main__" for name in named)}


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
