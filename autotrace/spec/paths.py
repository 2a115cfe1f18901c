"""The syntax of paths, ``result.outputs.-1.token_ids``, and of what is computed with them (``config.expressions``).
They are read by ``record.fields``."""

from __future__ import annotations

import re

from autotrace.config import expressions

_WORD = re.compile(r"[^\W\d]\w*\Z")
_QUOTED = re.compile(r"\[\s*['\"]")


def roots(path: str) -> tuple[str, ...]:
    """First words: an argument, ``self``, ``kwargs``, ``result`` or ``item``, in rows ``row``, ``i`` or ``n``."""
    if not expressions.is_expression(path):
        return (path.split(".", 1)[0],)
    try:
        return tuple(dict.fromkeys(expressions.roots(expressions.parse(path))))
    except expressions.ExpressionError:
        return ()


def fault(path: str) -> str | None:
    """What is wrong with ``path`` and what to write instead; None when it can be read."""
    shown = f"`{path}`"
    if not path.strip():
        return "an empty path: write an argument's name, or result.NAME"
    if _QUOTED.search(path):
        return f"{shown}: write indexes and keys with dots, `{_dotted(path)}`"
    if expressions.is_expression(path):
        try:
            expressions.parse(path)
        except expressions.ExpressionError as error:
            return f"{shown}: {error}"
        return None
    words = path.split(".")
    if "" in words:
        return f"{shown}: a word is missing next to a dot"
    if not _WORD.match(words[0]):
        return f"{shown}: the first word is the name of an argument, self, kwargs, result or item"
    return None


def _dotted(path: str) -> str:
    inside = re.sub(r"\[\s*['\"]?([^\]'\"]*)['\"]?\s*\]", r".\1", path)
    return inside.replace("[", ".").replace("]", "").strip(".")
