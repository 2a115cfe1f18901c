"""Read a module or class body as a table of names, from the syntax tree alone."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})
"""Lists the decorators of ``contextlib`` that turn a generator into a context manager and receive the wrapper."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Imported:
    """Holds ``import module`` (``attribute`` is None) or ``from module import attribute``; ``module`` is absolute."""

    module: str
    attribute: str | None


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | Imported | ast.expr
"""Definition of a name; an expression is the value of ``name = value``."""


@dataclass
class Names:
    """Collects the names that a body defines, in the order of the text; branches of ``if`` and ``try`` count alike."""

    names: dict[str, list[Definition]] = field(default_factory=dict)
    typing_only: dict[str, list[Definition]] = field(default_factory=dict)
    """Names under ``if TYPE_CHECKING:``, absent when the program runs."""
    stars: list[str] = field(default_factory=list)
    """Lists the modules of ``from module import *``."""


def parsed(text: str | bytes) -> ast.Module:
    """Parse a module. Raises as ``ast.parse``, and ``RecursionError`` for a module that is nested too deeply."""
    with warnings.catch_warnings():  # of other people's escape sequences
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SystemError:  # CPython's count of the depth, disturbed by another thread (gh-106905)
            return ast.parse(text)
        except MemoryError:  # CPython's parser has too little of its own stack
            raise RecursionError("it is nested too deeply") from None


def outline(text: str) -> list[ast.stmt]:
    """Return the statements of a module, without the bodies of functions.

    Bodies are most of a tree, and a tree takes 50 times the memory of its text. Raises as ``ast.parse``.
    """
    body = parsed(text).body
    waiting = [body]
    while waiting:
        for statement in waiting.pop():
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                statement.body = []
            else:
                waiting.extend(_blocks(statement))
    return body


@lru_cache(maxsize=4096)
def code_of(function: Function, text: str) -> CodeType:
    """Compile ``function``, a statement of the module with this ``text``, alone and undecorated; return the code
    object."""
    lines = text.split("\n")[function.lineno - 1 : function.end_lineno]
    around = ["if True:"] if lines[0][:1].isspace() else []
    with warnings.catch_warnings():  # of other people's escape sequences
        warnings.simplefilter("ignore")
        waiting = [compile("\n".join([*around, *lines, ""]), "<source>", "exec", dont_inherit=True)]
    for code in waiting:  # type parameters have a code around the function's
        if code.co_name == function.name:
            return code
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    raise ValueError(f"no function {function.name} in line {function.lineno}")


def names_of(body: Sequence[ast.stmt], module: str, package: bool) -> Names:
    """Collect the names in ``body`` of the module called ``module``."""
    table = Names()
    _collect(body, table, table.names, module if package else module.rpartition(".")[0])
    return table


def _collect(body: Sequence[ast.stmt], table: Names, into: dict[str, list[Definition]], package: str) -> None:
    for statement in body:
        for name, definition in _definitions(statement, package, table):
            into.setdefault(name, []).append(definition)
        if isinstance(statement, ast.If) and last_word(statement.test) == "TYPE_CHECKING":
            _collect(statement.body, table, table.typing_only, package)
            _collect(statement.orelse, table, into, package)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for inner in _blocks(statement):
                _collect(inner, table, into, package)


def _definitions(statement: ast.stmt, package: str, table: Names) -> Iterator[tuple[str, Definition]]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name, statement
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname:
                yield alias.asname, Imported(alias.name, None)
            else:
                yield alias.name.split(".")[0], Imported(alias.name.split(".")[0], None)
    elif isinstance(statement, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
        module = ".".join([*above, *([statement.module] if statement.module else [])])
        for alias in statement.names:
            if alias.name == "*":
                table.stars.append(module)
            else:
                yield alias.asname or alias.name, Imported(module, alias.name)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
    elif (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None
    ):
        yield statement.target.id, statement.value


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for key in ("body", "orelse", "finalbody"):
        block = getattr(statement, key, None)
        if isinstance(block, list):
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def last_word(expression: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``, ``a.b.c(...)`` or ``a.b.c[...]``; "" for any other expression."""
    return dotted(expression).rpartition(".")[2]


def dotted(expression: ast.expr) -> str:
    """Return ``a.b.c`` of a dotted expression, also if called or subscripted; "" for any other expression."""
    if isinstance(expression, (ast.Call, ast.Subscript)):
        return dotted(expression.func if isinstance(expression, ast.Call) else expression.value)
    if isinstance(expression, ast.Attribute):
        front = dotted(expression.value)
        return f"{front}.{expression.attr}" if front else ""
    return expression.id if isinstance(expression, ast.Name) else ""


def arguments(function: Function | ast.Lambda) -> tuple[str, ...]:
    """List the parameter names as written, ``*args`` and ``**kwargs`` with stars, ``*`` before keyword-only names."""
    given = function.args
    positional, keywords = ([one.arg for one in of] for of in ((*given.posonlyargs, *given.args), given.kwonlyargs))
    rest, others = (None if one is None else one.arg for one in (given.vararg, given.kwarg))
    return as_written(positional, rest, keywords, others)


def as_written(
    positional: Sequence[str], rest: str | None, keywords: Sequence[str], others: str | None
) -> tuple[str, ...]:
    """List parameter names as written, from names by kind; ``rest`` and ``others`` take the remaining arguments."""
    stars = [f"*{rest}"] if rest else ["*"] if keywords else []
    return (*positional, *stars, *keywords, *([f"**{others}"] if others else []))


def kind(code: CodeType) -> str:
    """Return function | async function | generator | async generator."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return "async generator"
    if code.co_flags & inspect.CO_COROUTINE:
        return "async function"
    return "generator" if code.co_flags & inspect.CO_GENERATOR else "function"
