"""The syntax of a target: ``pkg.mod.Class.method``, ``pkg.mod:Class.method``, ``pkg.mod.Class.*``, ``pkg.**``."""

from __future__ import annotations

import keyword
import re

from autotrace.adapters.registry import is_endless

_WORD = re.compile(r"[^\W\d]\w*\Z")


def is_glob(name: str) -> bool:
    """Whether ``name`` means several functions."""
    return name.endswith((".*", ".**", ":*", ":**"))


def stem(name: str) -> str:
    """A glob without its stars, dotted."""
    return name.rstrip("*").rstrip(".:").replace(":", ".")


def top(name: str) -> str:
    """The top-level module of ``name``."""
    return re.split(r"[.:]", name, maxsplit=1)[0]


def fault(name: str) -> str | None:
    """Why ``name`` can never be found, and what to write instead; None when it may exist."""
    shown = f"`{name}`"
    if not name.strip():
        return "an empty name: write package.module.Class.method"
    if name.startswith(("target:", "- ")):
        return f"{shown}: put a space after the colon, `target: package.module.Class.method`"
    if name != name.strip() or " " in name:
        return f"{shown} has a space in it: a dotted name has none"
    if name.endswith(")"):
        return f"{shown}: leave the parentheses out, name the function and not a call of it"
    if "/" in name or name.endswith(".py") or ".py:" in name:
        return f"{shown} is a file: write it with dots, `{_dotted(name)}`"
    if "<locals>" in name:
        return f"{shown}: a function inside a function does not exist before the outer one runs; name the outer one"
    if name.count(":") > 1:
        return f"{shown} has two colons: one between the module and the rest, `package.module:Class.method`"
    return _words_fault(name, shown)


def _words_fault(name: str, shown: str) -> str | None:
    glob = is_glob(name)
    words = re.split(r"[.:]", stem(name) if glob else name)
    if "" in words:
        if name.startswith("."):
            return f"{shown} is relative: start with the top-level package"
        return f"{shown}: a word is missing next to a dot"
    for word in words:
        if "*" in word:
            return f"{shown}: `*` may only be the last word, `package.module.Class.*` or `package.**`"
        if not _WORD.match(word):
            return f"{shown}: `{word}` is not a Python name"
        if keyword.iskeyword(word):
            return f"{shown}: `{word}` is a Python keyword and cannot be a name"
    if len(words) == 1 and not glob:
        return f"{shown} is one word: write package.module.function or package.module.Class.method"
    return refusal(name)


def refusal(name: str) -> str | None:
    """Why ``name`` is never wrapped: the process entry points and endless loops of vLLM and SGLang."""
    library, word = top(name), re.split(r"[.:]", name)[-1]
    if not is_endless(library, word):
        return None
    return (
        f"`{name}` is the entry point of a process or an endless loop: its span would never end. "
        f"Name what it calls for each request or step, or use the shipped {library}.yaml"
    )


def _dotted(name: str) -> str:
    """What was meant by a path, behind which ``:`` or ``::`` may name the function."""
    path, _, function = name.partition(":")
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    return f"{module}.{function.strip(':').replace('::', '.') or 'function'}"
