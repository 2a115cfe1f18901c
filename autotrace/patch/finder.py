"""Being told when a module was imported, without anybody noticing.

The module's own loader stays in place; it only gets an ``exec_module`` of ours as an instance attribute for that one
execution, so ``module.__loader__``, ``__spec__`` and ``isinstance`` checks see what they always saw. wrapt's import hook
is not used: it matches exact names only, puts a proxy loader in place, and an exception in a hook fails the import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from autotrace.record import faults

Imported = Callable[[ModuleType], None]


class Finder:
    """A ``sys.meta_path`` entry that finds nothing itself: it asks the others and hooks the loader they answer with."""

    def __init__(self, wanted: Callable[[str], bool], imported: Imported) -> None:
        self.wanted = wanted
        self.imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec the other finders give, its loader hooked if the module is wanted."""
        if not self.wanted(name):
            return None
        spec = _ask_others(self, name, path, target)
        if spec is not None and spec.loader is not None:
            try:
                self._hook(spec)
            except Exception as error:
                faults.failed("finder", error)
        return spec

    def _hook(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__") or "exec_module" in vars(loader):
            return  # a loader several modules share (zipimport) carries one hook; the sweep after it sees the others
        imported = self.imported

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            try:
                imported(module)
            except Exception as error:
                faults.failed("imported", error)

        loader.exec_module = exec_module


def _ask_others(own: Any, name: str, path: Any, target: Any) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        # the bootstrap's own entry leads back here
        if finder is own or getattr(finder, "autotrace", False):
            continue
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None
