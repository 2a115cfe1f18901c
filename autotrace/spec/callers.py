"""Whether a function looks at its caller, judged by its source; ``patch.callers`` judges the same by its bytecode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autotrace.spec import syntax
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Function

_TRANSPARENT = frozenset({"staticmethod", "classmethod", "property", "cached_property", "abstractmethod"})
"""Decorators that leave the function itself in place."""


def looks_at_caller(symbol: Function, resolver: Resolver) -> bool:
    """Whether ``symbol``, or a function of its module that it calls for that, looks at its caller's frame."""
    node = symbol.node
    if isinstance(node, ast.Lambda) or any(syntax.last_word(item) not in _TRANSPARENT for item in node.decorator_list):
        return False
    if _reaches(node, 1):
        return True
    called = (resolver.member(symbol.module, word) for word in _words(node))
    return any(isinstance(other, Function) and _reaches(other.node, 2) for other in called)


def _reaches(function: syntax.Function | ast.Lambda, depth: int) -> bool:
    words = set(_words(function))
    if words & {"f_back", "getouterframes", "_getframemodulename"} or {"stack", "inspect"} <= words:
        return True
    constants = (node.value for node in _own(function) if isinstance(node, ast.Constant))
    return "_getframe" in words and any(type(value) is int and value >= depth for value in constants)


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
