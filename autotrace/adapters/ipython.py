"""Record functions that a cell of a notebook or prompt defines; their names in a spec begin with ``__main__``."""

from __future__ import annotations

import ast
import sys
from typing import Any

from autotrace.adapters.hooks import showing
from autotrace.patch import adapting, program


def install() -> None:
    """See each cell before the cell is compiled. Called right after ``IPython.core.interactiveshell`` was imported."""
    shell: Any = sys.modules["IPython.core.interactiveshell"].InteractiveShell
    adapting.put(shell, "transform_ast", showing(shell.transform_ast, "ipython", after=_transformed))


def _transformed(transformed: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(transformed, ast.Module):
        program.show(transformed, ("__main__",))
