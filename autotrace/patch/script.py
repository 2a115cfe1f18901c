"""Functions of ``python script.py``: Python compiles a script itself and asks no loader, so nobody could decorate them.

But it looks first whether the script is a folder or an archive with a ``__main__`` inside, by ``sys.path_hooks``, and
so does ``runpy.run_path``, with which a child of ``multiprocessing`` runs the script of its parent. A hook that takes
this one path gives the code of ``main_module.instrumented``. The code begins with a call of ``as_script``, after which
the module has the names that a script's has. What the program can notice: two frames of ``runpy`` below its own, as
with ``python -m``.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any

from autotrace.patch import main_module
from autotrace.record import faults

_BEGIN = f"__import__({__name__!r}, None, None, ('as_script',)).as_script(globals())"

Instrument = Callable[[str, str, str], "ast.Module | None"]
"""(name of the script in lists, source, path) -> the program to run; None: nothing in it is a target."""


class ScriptHook:
    """An entry of ``sys.path_hooks`` that takes one script, once, and refuses every other path."""

    def __init__(self, instrument: Instrument, script: str | None) -> None:
        """``script``: its path; None in a child that is about to run its parent's, whose path it does not know yet."""
        self.instrument = instrument
        self.script = None if script is None else os.path.abspath(script)

    def install(self) -> None:
        """Be asked before the others, which take folders and archives."""
        sys.path_hooks.insert(0, self)

    def remove(self) -> None:
        """Be asked no more."""
        if self in sys.path_hooks:
            sys.path_hooks.remove(self)

    def __call__(self, path: str) -> ScriptFinder:
        """The finder of ``path``, if that is the script; ``ImportError`` says no, as the protocol has it."""
        try:
            name = main_module.stem(path) if type(path) is str else None
            if name is not None and self.script in (None, os.path.abspath(path)) and os.path.isfile(path):
                with open(path, "rb") as file:
                    source = importlib.util.decode_source(file.read())
                tree = self.instrument(name, source, path)
                if tree is not None:
                    return ScriptFinder(self, path, main_module.compiled(_begun(tree), path))
        except Exception as error:  # what cannot be read or parsed, Python itself complains about
            faults.failed("script", error)
        raise ImportError(path)


class ScriptFinder:
    """Finds ``__main__`` in the script, and is its loader."""

    def __init__(self, hook: ScriptHook, path: str, code: CodeType) -> None:
        self.hook = hook
        self.path = path
        self.code = code

    def find_spec(self, name: str, target: Any = None) -> ModuleSpec | None:
        """The program, and nothing else."""
        return ModuleSpec(name, self, origin=self.path) if name == "__main__" else None  # type: ignore[arg-type]

    def get_code(self, _: str) -> CodeType:
        """The code; from now on everything is as if the path had not been taken."""
        self.hook.remove()
        sys.path_importer_cache[self.path] = None  # as it is for every script
        if sys.path and sys.path[0] == self.path:
            del sys.path[0]
            isolated = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
            if self.hook.script is not None and not isolated:
                sys.path.insert(0, os.path.dirname(os.path.realpath(self.path)))
        return self.code


def _begun(tree: ast.Module) -> ast.Module:
    """``tree``, which calls ``as_script`` before its first statement."""
    place = 1 if tree.body and _is_text(tree.body[0]) else 0
    while place < len(tree.body) and _is_future(tree.body[place]):
        place += 1
    call = ast.parse(_BEGIN).body[0]
    for node in ast.walk(call):
        if hasattr(node, "lineno"):
            ast.copy_location(node, tree.body[place] if place < len(tree.body) else ast.Pass(lineno=1, col_offset=0))
    tree.body.insert(place, call)
    return tree


def as_script(names: dict[str, Any]) -> None:
    """Give ``names``, of the module that begins, what those of a script have. Never raises."""
    names["__spec__"] = names["__package__"] = names["__cached__"] = None
    path = names.get("__file__")
    if names.get("__name__") == "__main__" and isinstance(path, str):
        names["__loader__"] = SourceFileLoader("__main__", path)
    else:  # as `runpy.run_path` leaves it
        names["__loader__"], names["__package__"] = None, ""


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
