"""The files of the page."""

from __future__ import annotations

import functools
import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r"^import .*?;\n", re.M | re.S)
_MODULE = re.compile(r'from "\./(?P<name>[\w.]+)";')
_EXPORT = re.compile(r"^export ", re.M)


def text(name: str) -> str:
    """The content of a file of ``STATIC``."""
    return (STATIC / name).read_text(encoding="utf-8")


@functools.cache  # anybody may ask for it
def bundle(entry: str) -> str:
    """The module ``entry`` and all that it imports as one script. Their top-level names have to differ, which a test
    looks at."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for match in _MODULE.finditer(text(name)):
                visit(match["name"])
            order.append(name)

    visit(entry)
    parts = (_EXPORT.sub("", _IMPORT.sub("", text(name))) for name in order)
    return "\n".join(parts).replace("</script", "<\\/script")
