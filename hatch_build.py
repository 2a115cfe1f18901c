"""Runs when the package is built: compiles the shipped specs, so that no start of ``autotrace-run`` compiles them, and
makes README readable on the page of an index."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)")


class CompileLists(BuildHookInterface):  # type: ignore[type-arg]
    """Writes ``patch_specs/compiled.json``, which travels in the wheel with the lists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling calls this method before it collects files, of a wheel and of an editable install."""
        sys.path.insert(0, self.root)
        from autotrace.spec.compiler import write_shipped

        with contextlib.suppress(OSError):  # a source tree that nobody may write: each start compiles the lists
            write_shipped()


class IndexPage(MetadataHookInterface):
    """Sets ``readme`` to README with links that work on the page of an index."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Hatchling calls this method with the table ``[project]``."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(text, source)}


def index_page(readme: str, source: str) -> str:
    """Make links and pictures below ``source`` absolute. Without a ``source``, links are their texts and pictures are
    left out: a file of the repository has no address on an index."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if not source:
            return "" if picture else text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return _LINK.sub(absolute, readme)
