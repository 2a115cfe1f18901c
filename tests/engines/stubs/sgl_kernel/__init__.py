"""Stands in for SGLang's compiled kernels, of which there is no build for CPUs on the index.

Every symbol resolves to something that raises when it is called; a tiny Llama calls none.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__path__: list[str] = []
__version__ = "0.4.10"


class Missing:
    """A symbol, and what is below it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Missing:
        return _missing(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"sgl_kernel is not built for this machine: {self.__name__}")


def _missing(name: str) -> Missing:
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    return Missing(name)


def __getattr__(name: str) -> Missing:
    return _missing(name)


class Submodules:
    """Finds and makes ``sgl_kernel.anything``."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """A spec for what is below this package."""
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("sgl_kernel.") else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        """A module whose every member is missing."""
        module = ModuleType(spec.name)
        module.__getattr__ = _missing  # type: ignore[method-assign]
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(Submodules())  # type: ignore[arg-type]
