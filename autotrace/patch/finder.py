"""Being told when a module was imported, without anybody noticing.

The module's own loader stays in place; it only gets an ``exec_module`` of ours as an instance attribute for that one
execution, so ``module.__loader__``, ``__spec__`` and ``isinstance`` checks see what they always saw. wrapt's import
hook is not used: it matches exact names only, puts a proxy loader in place, and an exception in a hook fails the
import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from autotrace.patch import main_module
from autotrace.record import faults
from autotrace.record.frames import transparent

Imported = Callable[[ModuleType, Sequence[ModuleType]], None]
"""Called with a module that was executed, and those that were imported while it was."""


class Finder:
    """A ``sys.meta_path`` entry that finds nothing itself: it asks the others and hooks the loader they answer with."""

    autotrace = True

    def __init__(
        self,
        wanted: Callable[[str], bool],
        imported: Imported,
        runs_as_main: Callable[[str], Callable[[str], bool] | None],
    ) -> None:
        self.wanted: Callable[[str], bool] | None = wanted
        """None: closed, everything is left to the other finders."""
        self.imported = imported
        self.runs_as_main = runs_as_main

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec the other finders give, its loader hooked if the module is wanted."""
        if self.wanted is None or not self.wanted(name):
            return None
        spec = _ask_others(name, path, target)
        if spec is not None and spec.loader is not None:
            try:
                self._hook(name, spec)
            except Exception as error:
                faults.failed("finder", error)
        return spec

    def _hook(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if isinstance(loader, type) or not hasattr(loader, "__dict__") or not hasattr(loader, "exec_module"):
            return  # builtin, frozen, or of the kind that Python 3.12 no longer knows
        hook = vars(loader).get("exec_module")
        if isinstance(getattr(hook, "pending", None), set):
            hook.pending.add(name)
            return
        if hook is None:
            _hook_execution(loader, name, self)
            # zipimport's loader loads many modules, and would take what is meant for runpy when it imports another
            if getattr(loader, "name", None) == name and self.runs_as_main(name) is not None:
                _hook_code(loader, self)


def _hook_execution(loader: Any, name: str, finder: Finder) -> None:
    """Give ``loader`` an ``exec_module`` that takes itself away again after the modules it waits for.

    Most loaders load one module; zipimport's and pytest's load many, several of which may be on their way.
    """
    execute = loader.exec_module
    pending = {name}

    @transparent
    def exec_module(module: ModuleType) -> None:
        pending.discard(getattr(module, "__name__", ""))
        if not pending:
            vars(loader).pop("exec_module", None)
            vars(loader).pop("get_code", None)
        known = len(sys.modules)
        execute(module)
        try:
            meanwhile = [other for other in list(sys.modules.values())[known:] if isinstance(other, ModuleType)]
            finder.imported(module, meanwhile)
        except Exception as error:
            faults.failed("imported", error)

    exec_module.pending = pending  # type: ignore[attr-defined]
    loader.exec_module = exec_module


def _hook_code(loader: Any, finder: Finder) -> None:
    """Give ``loader`` a ``get_code`` for ``runpy``, which runs a module without importing it."""
    if not hasattr(loader, "get_source") or not hasattr(loader, "get_code"):
        return
    original = loader.get_code

    def get_code(module: str) -> CodeType | None:
        vars(loader).pop("get_code", None)
        vars(loader).pop("exec_module", None)
        try:
            takes = finder.runs_as_main(module)
            source = loader.get_source(module)
            if takes is not None and source is not None:
                return main_module.instrumented(module, source, loader.get_filename(module), takes)
        except Exception as error:
            faults.failed("main", error)
        code: CodeType | None = original(module)
        return code

    loader.get_code = get_code


def _ask_others(name: str, path: Any, target: Any) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        if getattr(finder, "autotrace", False):  # this one, or the bootstrap's, which leads here
            continue
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None
