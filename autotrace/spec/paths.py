"""The syntax of paths: ``result.outputs.-1.token_ids``. They are read by ``record.fields``."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d]\w*\Z")


def root(path: str) -> str:
    """First word: an argument, ``self``, ``kwargs``, ``result`` or ``item``."""
    return path.split(".", 1)[0]


def fault(path: str) -> str | None:
    """What is wrong with ``path`` and what to write instead; None when it can be read."""
    shown = f"`{path}`"
    if not path.strip():
        return "an empty path: write an argument's name, or result.NAME"
    if "[" in path or "]" in path:
        return f"{shown}: write indexes and keys with dots, `{_dotted(path)}`"
    if "(" in path:
        return f"{shown}: a path reads attributes, keys and indexes, it calls nothing"
    if any(character.isspace() for character in path):
        return f"{shown} has a space in it: words are joined by dots"
    words = path.split(".")
    if "" in words:
        return f"{shown}: a word is missing next to a dot"
    if not _WORD.match(words[0]):
        return f"{shown}: the first word is the name of an argument, self, kwargs, result or item"
    return None


def _dotted(path: str) -> str:
    inside = re.sub(r"\[\s*['\"]?([^\]'\"]*)['\"]?\s*\]", r".\1", path)
    return inside.replace("[", ".").replace("]", "").strip(".")
