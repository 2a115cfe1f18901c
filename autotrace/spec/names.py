"""Check the spelling of targets, paths and version ranges in a spec.

Targets are ``pkg.mod.Class.method``, ``pkg.mod:Class.method``, ``pkg.mod.Class.*`` or ``pkg.**``. ``record.fields``
reads paths such as ``result.outputs.-1.token_ids``. A range such as ``verl>=0.5,<0.8`` is a distribution and a PEP 440
range.
"""

from __future__ import annotations

import keyword
import re
from difflib import get_close_matches

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from autotrace.adapters.registry import is_endless
from autotrace.config import expressions
from autotrace.record.spec_functions import FUNCTIONS

_WORD = re.compile(r"[^\W\d]\w*\Z")


def is_glob(name: str) -> bool:
    """Tell whether ``name`` means several functions."""
    return name.endswith((".*", ".**", ":*", ":**"))


def stem(name: str) -> str:
    """Return a glob without stars, dotted."""
    return name.rstrip("*").rstrip(".:").replace(":", ".")


def top(name: str) -> str:
    """Return the top-level module of ``name``."""
    return re.split(r"[.:]", name, maxsplit=1)[0]


def wrong_name(name: str) -> str | None:
    """Explain why ``name`` can never be found, and name a correction; None if ``name`` may exist."""
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
    """Explain why ``name`` is never wrapped: the process entry points and endless loops of vLLM and SGLang."""
    library, word = top(name), re.split(r"[.:]", name)[-1]
    if not is_endless(library, word):
        return None
    return (
        f"`{name}` is the entry point of a process or an endless loop: its span would never end. "
        f"Name what it calls for each request or step, or use the shipped {library}.yaml"
    )


def _dotted(name: str) -> str:
    """Return the dotted name for a file path, behind which ``:`` or ``::`` may name the function."""
    path, _, function = name.partition(":")
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    return f"{module}.{function.strip(':').replace('::', '.') or 'function'}"


_QUOTED = re.compile(r"\[\s*['\"]")


def roots(path: str) -> tuple[str, ...]:
    """Return the first words of ``path``.

    A first word is an argument, ``self``, ``kwargs``, ``result`` or ``item``, and in rows also ``row``, ``i`` or ``n``.
    """
    if not expressions.is_expression(path):
        return (path.split(".", 1)[0],)
    try:
        return tuple(dict.fromkeys(expressions.roots(expressions.parse(path))))
    except expressions.ExpressionError:
        return ()


def wrong_path(path: str) -> str | None:
    """Explain the fault of ``path`` and name a correction; None if the path can be read."""
    shown = f"`{path}`"
    if not path.strip():
        return "an empty path: write an argument's name, or result.NAME"
    if _QUOTED.search(path):
        return f"{shown}: write indexes and keys with dots, `{_dotted_path(path)}`"
    if expressions.is_expression(path):
        try:
            tree = expressions.parse(path)
        except expressions.ExpressionError as error:
            return f"{shown}: {error}"
        return next((f"{shown}: {fault}" for call in expressions.calls(tree) if (fault := _wrong_call(*call))), None)
    words = path.split(".")
    if "" in words:
        return f"{shown}: a word is missing next to a dot"
    if not _WORD.match(words[0]):
        return f"{shown}: the first word is the name of an argument, self, kwargs, result or item"
    return None


def _wrong_call(name: str, count: int) -> str | None:
    function = FUNCTIONS.get(name)
    if function is None:
        nearest = get_close_matches(name, FUNCTIONS, 1) or sorted(FUNCTIONS)
        return f"there is no function `{name}`; choose {' or '.join(nearest)}"
    if function.takes(count):
        return None
    shown = ", ".join(argument for argument, _ in function.arguments)
    return f"`{name}` takes {name}({shown}), not {count}"


def _dotted_path(path: str) -> str:
    inside = re.sub(r"\[\s*['\"]?([^\]'\"]*)['\"]?\s*\]", r".\1", path)
    return inside.replace("[", ".").replace("]", "").strip(".")


LONGEST = 500
"""Limit the characters of a range: the time to parse a range grows with the square of its length."""


def wrong_range(text: str) -> str | None:
    """Explain the fault of the range ``text``; None if some release can be in the range."""
    if len(text) > LONGEST:
        return f"a version range has at most {LONGEST} characters, this one has {len(text):,}"
    shown = f'"{text}"'
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        if text[:1] in "<>=!~":
            return f'{shown} names no distribution: write for example "verl{text}"'
        return f'{shown} is not a version range: write for example "verl>=0.5,<0.8"'
    if wanted.marker or wanted.url or wanted.extras:
        return f'{shown}: only a distribution and a range, for example "{wanted.name}>=0.5"'
    if not wanted.specifier:
        return f'{shown} has no range: write for example "{wanted.name}>=0.5", or leave `versions` out'
    if _empty(wanted.specifier):
        return f"{shown} excludes every release: no version is in all of these ranges"
    return None


def distribution(text: str) -> str:
    """Return the distribution that a valid range names."""
    return Requirement(text).name


def within(text: str, version: str) -> bool:
    """Tell whether ``version`` is in the range. A version that cannot be parsed counts as in range."""
    try:
        return Requirement(text).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def _empty(specifier: SpecifierSet) -> bool:
    """Tell whether no release can satisfy all parts: tries the bounds and their neighbours."""
    candidates = {"0", "99999"}
    for part in specifier:
        if part.operator == "===":
            return False
        bound = Version(part.version.removesuffix(".*"))
        words = [str(word) for word in bound.release]
        raised = [*words[:-1], str(bound.release[-1] + 1)]
        candidates |= {part.version.removesuffix(".*"), ".".join([*words, "0", "1"]), ".".join(raised)}
        candidates |= {f"{bound.base_version}{suffix}" for suffix in (".post1", "rc1", ".dev0", ".post99999")}
        if bound.release[-1]:
            candidates.add(".".join([*words[:-1], str(bound.release[-1] - 1), "99999"]))
    return not any(specifier.contains(Version(candidate), prereleases=True) for candidate in candidates)
