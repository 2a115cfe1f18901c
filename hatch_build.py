"""Compiles the shipped lists when the package is built, so that no start of ``autotrace-run`` compiles them."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileLists(BuildHookInterface):  # type: ignore[type-arg]
    """Writes ``patch_specs/compiled.json``, which travels in the wheel with the lists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling calls this method before it collects files, of a wheel and of an editable install."""
        sys.path.insert(0, self.root)
        from autotrace.spec.compiler import write_shipped

        with contextlib.suppress(OSError):  # a source tree that nobody may write: each start compiles the lists
            write_shipped()
