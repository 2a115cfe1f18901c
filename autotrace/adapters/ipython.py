"""IPython: functions that a cell of a notebook or prompt defines, in whose names a list begins with ``__main__``."""

from __future__ import annotations

import ast
import functools
import sys
from typing import Any

from autotrace.patch import adapting, program
from autotrace.record import faults


def install() -> None:
    """See each cell before it is compiled. Called right after ``IPython.core.interactiveshell`` was imported."""
    shell: Any = sys.modules["IPython.core.interactiveshell"].InteractiveShell
    original = shell.transform_ast

    @functools.wraps(original)
    def transform_ast(self: Any, node: Any) -> Any:
        transformed = original(self, node)
        try:
            if isinstance(transformed, ast.Module):
                program.show(transformed, ("__main__",))
        except Exception as error:
            faults.failed("ipython", error)
        return transformed

    adapting.put(shell, "transform_ast", transform_ast)
