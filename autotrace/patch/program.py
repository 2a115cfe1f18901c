"""The program that is being run: what lists call it, and how its functions show themselves.

Classes of ``__main__`` come through ``__build_class__`` as all others do. Functions do not come at all: the program is
never imported. So its code is compiled with one more statement after each ``def`` that a list may name, which shows the
function to the engine. Who compiles the program: ``import_hook``, ``program_hooks``.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from autotrace.record import faults
from autotrace.run.process import arguments, program

MAINS = ("__main__", "__mp_main__")
"""What ``__name__`` is in the program itself, and in a child that ``multiprocessing`` spawned of it."""
_MODULE = ("-m", "--module")

on_definition: Callable[[dict[str, Any], str, tuple[str, ...]], None] | None = None
"""Asked by ``defined``; set by the engine."""


class Wanted(NamedTuple):
    """Which top-level functions of a program lists name."""

    called: tuple[str, ...]
    """What lists may call the program."""
    names: frozenset[str]
    public: bool
    """A glob takes all that are public."""

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.public and not str(name).startswith("_"))


# -- what it is called -------------------------------------------------------------------------------------------------


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
    named = {word} if kind == "m" else set()
    named.update(word for before, word in itertools.pairwise(arguments(sys.orig_argv)) if before in _MODULE)
    return {*named, *(f"{name}.__main__" for name in named)}


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
    return os.path.basename(path)[:-3] if path is not None and path.endswith(".py") else None


def source_of(path: str) -> str:
    """The text of a script. Raises ``OSError``, ``SyntaxError`` or ``UnicodeDecodeError``."""
    with open(path, "rb") as file:
        return importlib.util.decode_source(file.read())


# -- its functions -----------------------------------------------------------------------------------------------------


class _Functions(ast.NodeTransformer):
    """Puts a call of ``defined`` after each top-level function that is wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.names: set[str] = set()

    def visit_FunctionDef(self, function: Any) -> Any:
        """Also of an ``async def``; what is inside of it is not at the top level."""
        if function.name not in self.wanted:
            return function
        self.names.add(function.name)
        return [function, _call("defined", f"globals(), {function.name!r}, {self.wanted.called!r}", function)]

    visit_AsyncFunctionDef: Any = visit_FunctionDef

    def visit_ClassDef(self, cls: ast.ClassDef) -> ast.ClassDef:
        """Nor is what a class has."""
        return cls


def _call(function: str, passed: str, place: ast.AST) -> ast.stmt:
    """A statement that calls ``function`` of this module, and stands where ``place`` does."""
    call = ast.parse(f"__import__({__name__!r}, None, None, ({function!r},)).{function}({passed})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, place)
    return call


def names_in(tree: ast.Module, wanted: Wanted | None) -> set[str]:
    """The wanted functions of a program, which show themselves when it runs."""
    if wanted is None:
        return set()
    functions = _Functions(wanted)
    functions.visit(tree)
    return functions.names


def names_of_running(main: ModuleType, wanted: Wanted | None) -> set[str]:
    """The wanted functions of a program that is compiled already. Raises what ``source_of`` does."""
    path = getattr(main, "__file__", None)
    kind, word = program(sys.orig_argv)
    if path is None:
        source = word if kind == "c" and not is_spawned() else ""
    else:
        source = source_of(path) if wanted and stem(path) else ""
    return names_in(ast.parse(source), wanted)


def may_have(path: str, wanted: Wanted | None) -> bool:
    """Whether the program at ``path`` has wanted functions; of a module, which is found later, nobody knows."""
    try:
        return wanted is not None and (not os.path.isfile(path) or bool(names_in(ast.parse(source_of(path)), wanted)))
    except Exception:  # what cannot be read or parsed, Python itself complains about
        return False


def defined(names: dict[str, Any], name: str, called: tuple[str, ...]) -> None:
    """The function ``name`` of the program with the globals ``names`` was just made. Never raises."""
    try:
        if on_definition is not None:
            on_definition(names, name, called)
    except Exception as error:
        faults.failed("main", error)


def code_of(path: str, source: str, wanted: Wanted | None, as_script: bool = False) -> CodeType | None:
    """The program, whose wanted functions show themselves; None: it has none."""
    tree = ast.parse(source, path)
    if not names_in(tree, wanted):
        return None
    if as_script:  # first, but for its docstring and its ``from __future__``
        place = next(number for number, statement in enumerate(tree.body) if not _comes_first(statement))
        tree.body.insert(place, _call("begun", "globals()", tree.body[place]))
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


def _comes_first(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def begun(names: dict[str, Any]) -> None:
    """Give ``names``, of a module that begins, what those of a script have. Never raises."""
    names["__spec__"] = names["__package__"] = names["__cached__"] = None
    path = names.get("__file__")
    if names.get("__name__") == "__main__" and isinstance(path, str):
        names["__loader__"] = SourceFileLoader("__main__", path)
    else:  # as `runpy.run_path` leaves it
        names["__loader__"], names["__package__"] = None, ""
