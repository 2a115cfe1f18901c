"""Suggest a name for a name that does not exist: the new place of a moved symbol, or the nearest existing name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from autotrace.spec.names import stem, top
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Class, Function, Module, Symbol

_DEFINITION = re.compile(r"^(?P<indent>[ \t]*)(?:(?:async[ \t]+)?def|(?P<cls>class))[ \t]+(?P<name>\w+)", re.MULTILINE)


def hint(name: str, resolver: Resolver, alternatives: Mapping[str, Iterable[str]]) -> str:
    """Return a sentence that says which name to write instead of ``name``; "" if nothing is near.

    ``alternatives`` maps a name to the other names of the same symbol in other releases (from the shipped specs).
    """
    path = stem(name).replace(":", ".")
    tail = name[len(stem(name)) :] if name.endswith("*") else ""
    for other in _elsewhere(path, alternatives):
        if other != name and isinstance(resolver.find(other), Function):
            return f"`{_short(name)}` moved to `{other}`"
    there, gone = _depth(path, resolver)
    if there is None:
        close = difflib.get_close_matches(top(path), resolver.source.children(""), n=5, cutoff=0.75)
        spellings = [f"{word}{path[len(top(path)) :]}" for word in close]
        there_are = (spelling for spelling in spellings if isinstance(resolver.find(spelling), (Function, Class)))
        best = next(there_are, next(iter(spellings), None))
        return f"did you mean `{best}{tail}`?" if best else ""
    if isinstance(there, Module) and there.trouble:
        return there.trouble
    moved = _same_elsewhere(path, resolver)
    spelt = _respelt(there, gone, resolver)
    if moved and spelt not in moved:
        places = " or ".join(f"`{name}`" for name in moved)
        return f"`{_short(path)}` moved to {places}"
    if spelt is not None:
        return f"did you mean `{spelt}{tail}`?"
    names = [word for word in resolver.own_names(there) if not word.startswith("_")]
    return f"`{_name(there)}` has {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else ""


def _elsewhere(name: str, alternatives: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield other names of ``name``, then the names that follow if the shipped specs show a renamed class."""
    yield from alternatives.get(name, ())
    owner, _, method = name.rpartition(".")
    for old, others in alternatives.items():
        if old.replace(":", ".").rpartition(".")[0] == owner:
            for other in others:
                yield f"{other.replace(':', '.').rpartition('.')[0]}.{method}"


def _depth(name: str, resolver: Resolver) -> tuple[Module | Class | None, list[str]]:
    """Find the deepest part of ``name`` that exists. Return that part and the words below that do not exist."""
    words = name.split(".")
    for cut in range(len(words) - 1, 0, -1):
        symbol = resolver.find(".".join(words[:cut]))
        if isinstance(symbol, (Module, Class)):
            return symbol, words[cut:]
    return None, words


def _respelt(there: Symbol, gone: list[str], resolver: Resolver) -> str | None:
    """Return the name with the first missing word replaced by a similar existing word, if the rest then resolves."""
    words = resolver.known_names(there)
    lowered = {word.lower(): word for word in words}
    for close in difflib.get_close_matches(gone[0].lower(), lowered, n=5, cutoff=0.7):
        word = lowered[close]
        inner = resolver.member(there, word)
        if resolver.below(inner, gone[1:]) is not None:
            return ".".join([_name(there), word, *gone[1:]])
        if len(gone) > 1 and isinstance(inner, (Module, Class)):
            deeper = _respelt(inner, gone[1:], resolver)
            if deeper is not None:
                return deeper
    return None


def _same_elsewhere(name: str, resolver: Resolver) -> list[str]:
    """Find the same ``Class.method`` (or class, or function) in other modules of the package, best first."""
    wanted = _short(name)
    found = _defined(top(name), name.rpartition(".")[2], resolver)
    modules = [module for module, qualname in found if qualname == wanted]
    modules.sort(key=lambda module: -difflib.SequenceMatcher(None, module, name).ratio())
    return [f"{module}.{wanted}" for module in modules[:2]]


def _defined(package: str, word: str, resolver: Resolver) -> Iterator[tuple[str, str]]:
    """Yield module and qualified name of each definition of ``word`` in ``package``.

    Nesting comes from the indentation, because syntax trees of a thousand files would take too long.
    """
    mentions = re.compile(rf"(?:def|class)[ \t]+{re.escape(word)}\b")
    for file in resolver.source.walk(package):
        if file.text is None or not mentions.search(file.text):
            continue
        above: list[tuple[int, str, bool]] = []
        for match in _DEFINITION.finditer(file.text):
            indent = len(match["indent"])
            while above and above[-1][0] >= indent:
                above.pop()
            if match["name"] == word and all(is_class for _, _, is_class in above):
                yield file.name, ".".join([*(name for _, name, _ in above), word])
            above.append((indent, match["name"], match["cls"] is not None))


def _short(name: str) -> str:
    """Return ``Class.method`` if the last but one word looks like a class; otherwise the last word."""
    words = name.replace(":", ".").split(".")
    return ".".join(words[-2:]) if len(words) > 1 and words[-2][:1].isupper() else words[-1]


def _name(symbol: Symbol) -> str:
    if isinstance(symbol, Class):
        return f"{symbol.module.name}.{symbol.qualname}"
    return symbol.name if isinstance(symbol, Module) else ""
