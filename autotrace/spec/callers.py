"""Whether a function looks at its callers, judged by its source; ``patch.callers`` judges the same by its bytecode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autotrace.spec import syntax
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Function, Module

_TRANSPARENT = frozenset({"staticmethod", "classmethod", "property", "cached_property", "abstractmethod"})
"""Decorators that leave the function itself in place."""
_COUNTING = frozenset({"_getframe", "_getframemodulename"})
_ANYWHERE = frozenset({"f_back", "getouterframes", "extract_stack", "format_stack", "print_stack", "walk_stack"})
_ANY = 1 << 30


def looks_at_caller(symbol: Function, resolver: Resolver, below: bool = False) -> bool:
    """Whether ``symbol``, or a function that it calls for that, looks at its callers' frames. ``below``: the wrapper is
    below its decorators."""
    node = symbol.node
    if isinstance(node, ast.Lambda):
        return False
    decorated = any(syntax.last_word(item) not in _TRANSPARENT | syntax.MANAGERS for item in node.decorator_list)
    return _looks(symbol, resolver, 2 if decorated and not below else 1)


def _looks(symbol: Function, resolver: Resolver, level: int) -> bool:
    if _reach(symbol, resolver) >= level:
        return True
    called = [*_called(symbol, resolver)]
    if any(_reach(other, resolver) > level for other in called):
        return True
    return not _later(symbol.node) and any(_looks(other, resolver, 1) for other in called if _later(other.node))


def _later(node: syntax.Function | ast.Lambda) -> bool:
    """Whether a call returns what is to be run later."""
    if isinstance(node, ast.AsyncFunctionDef):
        return True
    return any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _own(node))


def _called(symbol: Function, resolver: Resolver) -> Iterator[Function]:
    words = set(_words(symbol.node))
    found = [resolver.member(symbol.module, word) for word in words]
    package = symbol.module.name.partition(".")[0]
    modules = [module for module in found if isinstance(module, Module) and module.name.partition(".")[0] == package]
    found += [resolver.member(module, word) for module in modules for word in words]
    if symbol.owner is not None:
        found += [resolver.member(symbol.owner, word) for word in words]
    return (other for other in found if isinstance(other, Function))


def _reach(symbol: Function, resolver: Resolver) -> int:
    words = set(_words(symbol.node))
    if words & _ANYWHERE or ("stack" in words and ("inspect" in words or _is_of_inspect(symbol, resolver))):
        return _ANY
    return max(_counted(symbol.node), default=0) if words & _COUNTING else 0


def _is_of_inspect(symbol: Function, resolver: Resolver) -> bool:
    stack = resolver.member(symbol.module, "stack")
    return isinstance(stack, Function) and stack.module.name == "inspect"


def _counted(function: syntax.Function | ast.Lambda) -> Iterator[int]:
    calls = {id(node.func): node for node in _own(function) if isinstance(node, ast.Call)}
    for node in _own(function):
        if isinstance(node, (ast.Name, ast.Attribute)) and syntax.last_word(node) in _COUNTING:
            call = calls.get(id(node))
            depth = call.args[0] if call is not None and len(call.args) == 1 and not call.keywords else None
            if isinstance(depth, ast.Constant) and type(depth.value) is int:
                yield depth.value
            else:
                yield 0 if call is not None and not (call.args or call.keywords) else _ANY


def _words(function: syntax.Function | ast.Lambda) -> Iterator[str]:
    """Names and attributes in the body, without its own variables."""
    stored = (node for node in _own(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    own = {node.id for node in stored} | {word.lstrip("*") for word in syntax.arguments(function)}
    for node in _own(function):
        if isinstance(node, ast.Name) and node.id not in own:
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _own(function: syntax.Function | ast.Lambda) -> Iterator[ast.AST]:
    """The nodes of the body, without those of functions and classes in it, whose code is their own."""
    waiting: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
