"""The functions a glob target means: public ones written in Python, as ``patch.binder`` takes them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from autotrace.spec.names import stem
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Class, Function, Module


def expand(name: str, without: Sequence[str], resolver: Resolver) -> Iterator[Function]:
    """Functions below ``name`` (``pkg.mod.Class.*``, ``pkg.**``) that ``without`` does not leave out."""
    prefix = stem(name)
    thing = resolver.find(prefix)
    if isinstance(thing, Module):
        yield from _members(thing, without, resolver)
        if name.endswith("**") and thing.file.package:
            for file in resolver.source.walk(prefix):
                module = resolver.module(file.name)
                if module is not None and module is not thing:
                    yield from _members(module, without, resolver)
    elif isinstance(thing, Class):
        yield from _members(thing, without, resolver)


def _members(thing: Module | Class, without: Sequence[str], resolver: Resolver) -> Iterator[Function]:
    here = thing.name if isinstance(thing, Module) else thing.module.name
    for word in thing.table.names:
        if word.startswith("_"):
            continue
        found = resolver.member(thing, word)
        if not isinstance(found, (Function, Class)) or found.module.name != here:
            continue
        if isinstance(found, Function):
            dotted = f"{here}.{found.qualname}"
            if not any(fnmatch.fnmatchcase(dotted, pattern) for pattern in without):
                yield found
        elif isinstance(thing, Module) or found.qualname == f"{thing.qualname}.{word}":
            yield from _members(found, without, resolver)
