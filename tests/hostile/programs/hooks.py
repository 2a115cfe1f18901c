"""Import hooks put in front of ours: what they import is traced, or it is said that it is not."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any

from . import report

NAME = "tests.hostile.programs.hooked"


class OwnLoader(SourceFileLoader):
    """Compiles in its own way, as typeguard's does."""

    def exec_module(self, module: Any) -> None:
        """As the original, from a source of its own."""
        exec(compile(self.get_data(self.path), self.path, "exec"), module.__dict__)


class Front(MetaPathFinder):
    """Finds the module itself, so that nobody behind is asked."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The original's spec with a loader of its own."""
        spec = PathFinder.find_spec(name, path) if name == NAME else None
        if spec is not None and spec.origin is not None:
            spec.loader = OwnLoader(name, spec.origin)
        return spec


def main(variant: str) -> None:
    """``front``: before anything else; ``replaced``: the spec itself is another; ``alone``: ours was thrown out."""
    if variant == "front":
        sys.meta_path.insert(0, Front())
    elif variant == "replaced":
        sys.meta_path = [Front(), *sys.meta_path]
    else:
        sys.meta_path[:] = [Front(), *(finder for finder in sys.meta_path if not hasattr(finder, "autotrace"))]
    hooked = importlib.import_module(NAME)
    for number in range(5):
        hooked.work(number)
    report(calls=5)
