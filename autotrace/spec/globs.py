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
    symbol = resolver.find(prefix)
    if isinstance(symbol, Module):
        yield from _members(symbol, without, resolver)
        if name.endswith("**") and symbol.file.package:
            for file in resolver.source.walk(prefix):
                module = resolver.module(file.name)
                if module is not None and module is not symbol:
                    yield from _members(module, without, resolver)
    elif isinstance(symbol, Class):
        yield from _members(symbol, without, resolver)


def _members(symbol: Module | Class, without: Sequence[str], resolver: Resolver) -> Iterator[Function]:
    here = symbol.name if isinstance(symbol, Module) else symbol.module.name
    for word in symbol.table.names:
        if word.startswith("_"):
            continue
        member = resolver.member(symbol, word)
        if not isinstance(member, (Function, Class)) or member.module.name != here:
            continue
        if isinstance(member, Function):
            dotted = f"{here}.{member.qualname}"
            if not any(fnmatch.fnmatchcase(dotted, pattern) for pattern in without):
                yield member
        elif isinstance(symbol, Module) or member.qualname == f"{symbol.qualname}.{word}":
            yield from _members(member, without, resolver)
