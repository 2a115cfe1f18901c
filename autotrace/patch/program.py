"""Describe the running program: its names in specs, and how its functions reach the engine.

Classes of ``__main__`` come through ``__build_class__`` like all other classes. Functions do not: the program is never
imported. The program's code is therefore compiled with another decorator above each ``def`` that a spec may name; the
decorator shows the function to the engine. ``import_hook`` and ``program_hooks`` compile the program.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any
from zipimport import ZipImportError, zipimporter

from autotrace.record import faults
from autotrace.run.process import arguments, program

MAINS = ("__main__", "__mp_main__")
"""List the values of ``__name__`` in the program itself, and in a child that ``multiprocessing`` spawned."""

wanted: Callable[[tuple[str, ...]], set[str]] | None = None
"""Return the names of the functions that specs name, as patterns, given the names by which specs may call a program.
Set by the engine."""
on_definition: Callable[[str, str, Any, tuple[str, ...]], Any] | None = None
"""Return the replacement of ``value``, given ``(module, name, value, called)``. Set by the engine."""


# -- names of the program ----------------------------------------------------------------------------------------------


def name_of(module: str) -> str | None:
    """Return the import name of the program ``module`` (see ``MAINS``): ``pkg.mod`` after ``-m pkg.mod``, the script's
    file name without ``.py``. None for ``-c`` and the prompt."""
    running = sys.modules.get(module)
    spec = getattr(running, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return script_name(getattr(running, "__file__", None))


def names_of(module: str, file: str | None) -> tuple[str, ...]:
    """Return the names in specs of the program ``module`` (see ``MAINS``). ``file``: a file of the program."""
    other = None if file is None else run_by_another(file)
    return tuple(dict.fromkeys(name for name in (module, name_of(module), other) if name is not None))


def run_by_another(file: str) -> str | None:
    """Return the name in specs of the program in ``file``, if the file is on the command line behind this process's own
    program (``python -m cProfile train.py``, ``coverage run -m pkg.mod``)."""
    path = os.path.realpath(file)
    return next((name for ending, name in others().items() if path.endswith(ending)), None)


@functools.lru_cache(maxsize=1)
def others() -> dict[str, str]:
    """Map the end of the file's path -> the name in specs, for programs behind this process's own program."""
    found: dict[str, str] = {}
    words = arguments(sys.orig_argv)
    for before, word in zip(["", *words], words, strict=False):
        name = script_name(word) if word.endswith(".py") else None
        if before in ("-m", "--module"):
            found.update((f"{os.sep}{module.replace('.', os.sep)}.py", module) for module in (word, f"{word}.__main__"))
        elif name is not None and os.path.isfile(word):
            found[os.path.realpath(word)] = name
    return found


def modules() -> set[str]:
    """Return the modules that this process was started with, or that another program runs here: ``runpy`` asks for
    their code."""
    kind, word = program(sys.orig_argv)
    own = (word, f"{word}.__main__") if kind == "m" else ("__main__",) if kind == "script" else ()
    return {*others().values(), *own}  # a folder or an archive has a module ``__main__``


def script() -> str | None:
    """Return the script that this process was started with; None after ``-m``, ``-c`` or nothing at all."""
    kind, word = program(sys.orig_argv)
    return word if kind == "script" else None


def is_spawned() -> bool:
    """Return whether ``multiprocessing`` started this process, which then runs its parent's program as
    ``__mp_main__``."""
    kind, word = program(sys.orig_argv)
    return kind == "c" and word.startswith("from multiprocessing.")


def script_name(path: str | None) -> str | None:
    """Return the name of the script at ``path`` in specs."""
    return None if path is None else os.path.basename(path).removesuffix(".py")


# -- functions of the program ------------------------------------------------------------------------------------------


def show(tree: ast.Module, called: tuple[str, ...]) -> set[str]:
    """Insert a decorator above the others of each top-level function that specs name; return the functions' names.
    ``called``: the names by which specs may call the program."""
    patterns = wanted(called) if wanted is not None else ()
    shown = set()
    for function in _functions(tree):
        if any(fnmatch.fnmatchcase(function.name, pattern) for pattern in patterns):
            first = function.decorator_list[0] if function.decorator_list else function
            call = _call("defined", f"__name__, {function.name!r}, {called!r}", first)
            function.decorator_list.insert(0, call.value)
            shown.add(function.name)
    return shown


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions at the top level, without functions inside a function or a class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
        elif not isinstance(child, (ast.ClassDef, ast.expr)):
            yield from _functions(child)


def _call(function: str, passed: str, place: ast.AST) -> Any:
    """Build a statement that calls ``function`` of this module, at the position of ``place``."""
    call: Any = ast.parse(f"__import__({__name__!r}, None, None, ({function!r},)).{function}({passed})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, place)
    return call


def defined(module: str, name: str, called: tuple[str, ...]) -> Callable[[Any], Any]:
    """Create the decorator of the function ``name`` of the program, whose ``__name__`` is ``module``. Never raises."""

    def show(value: Any) -> Any:
        try:
            return value if on_definition is None else on_definition(module, name, value, called)
        except Exception as error:
            faults.failed("main", error)
            return value

    return show


def source_of(main: ModuleType) -> str:
    """Read the text of the program that runs as ``main``. Raises ``OSError``, ``SyntaxError`` or
    ``UnicodeDecodeError``."""
    path = getattr(main, "__file__", None)
    kind, word = program(sys.orig_argv)
    if path is None:
        return word if kind == "c" else ""
    return _read(path) if is_source(path) else ""


def is_source(path: str) -> bool:
    """Return whether ``path`` is a script with any ending, and not an archive, folder or compiled code."""
    if not os.path.isfile(path) or path.endswith(".pyc"):
        return False
    try:
        return path.endswith(".py") or not zipimporter(path)
    except ZipImportError:
        return True


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return importlib.util.decode_source(file.read())


def code_of(path: str, called: tuple[str, ...], as_script: bool = False, source: str | None = None) -> CodeType | None:
    """Compile the program at ``path`` so that its functions show themselves; None: specs name no function of the
    program, or Python itself reports an error. ``source``: the text, if ``path`` is in an archive."""
    try:
        tree = ast.parse(_read(path) if source is None else source, path)
        if not show(tree, called):
            return None
        if as_script:  # after the docstring and ``from __future__``, before all else
            place = next(number for number, statement in enumerate(tree.body) if not _comes_first(statement))
            tree.body.insert(place, _call("begun", "globals()", tree.body[place]))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code
    except Exception as error:
        faults.failed("program", error)
        return None


def _comes_first(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def begun(names: dict[str, Any]) -> None:
    """Give ``names``, of a module that begins, the special names of a script. Never raises."""
    names["__spec__"] = names["__package__"] = names["__cached__"] = None
    path = names.get("__file__")
    if names.get("__name__") == "__main__" and isinstance(path, str):
        names["__loader__"] = SourceFileLoader("__main__", path)
    else:  # as `runpy.run_path` leaves it
        names["__loader__"], names["__package__"] = None, ""
