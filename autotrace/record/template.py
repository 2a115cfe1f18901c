"""The code of a wrapper: the text of its kind (``importlib_bootstrap_wrappers``) with the parameters of its original.

A wrapper has exactly the parameters of its original, so a wrong call fails where it always failed: at the call, in the
caller's frame, with the same message, also for coroutine and generator functions (a ``*args, **kwargs`` wrapper would
fail at the first ``await``). It also costs less: no keyword dictionary is built and taken apart.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

FUNCTION, KEY, SYS = "_autotrace_function", "_autotrace_key", "_autotrace_sys"
"""Names of the closure: the original, its target's key, and the module ``sys``, which is pickled by name."""

CLASS = "__class__"
"""A fourth cell, shared with the original, where that uses ``super()``: attrs and dataclasses with slots make a second
class and put it into the cells of its methods' closures, and would not find the original's."""

PLAIN, COROUTINE, GENERATOR, ASYNC_GENERATOR = "plain", "coroutine", "generator", "async generator"
MANAGER, ASYNC_MANAGER = "manager", "async manager"
"""A generator, or an asynchronous one, that ``contextlib`` makes a context manager of."""


class Shape(NamedTuple):
    """A function's parameters as source text."""

    declared: str
    """Between the parentheses of ``def``; defaults are not part of the code."""
    call: str
    """What passes them on."""
    args: str
    """The positional ones as a tuple."""
    kwargs: str
    """The others as a dict."""


_ANY = Shape(*("*_autotrace_args, **_autotrace_kwargs",) * 2, "_autotrace_args", "_autotrace_kwargs")
"""For parameters that no source text can name."""

_TEXT = Path(__file__).with_name("importlib_bootstrap_wrappers.py")
FILE = str(_TEXT)
"""``co_filename`` of every wrapper: tracebacks, debuggers and coverage find the lines there."""

_BODIES = {
    PLAIN: "plain",
    COROUTINE: "coroutine",
    GENERATOR: "generator",
    ASYNC_GENERATOR: "async_generator",
    MANAGER: "manager",
    ASYNC_MANAGER: "async_manager",
}
"""Names of the functions there."""
_CELLS = {"function": FUNCTION, "key": KEY, "sys": SYS}
"""What the text calls what the closure holds."""
_PASSED = re.compile(r"\(\*args, \*\*kwargs\)")
_BEGIN = re.compile(r"\bargs, kwargs\)")


def kind_of(code: CodeType) -> str:
    """Which of the four kinds of function ``code`` belongs to; that of a context manager is a generator."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return ASYNC_GENERATOR
    if code.co_flags & inspect.CO_COROUTINE:
        return COROUTINE
    return GENERATOR if code.co_flags & inspect.CO_GENERATOR else PLAIN


def code_for(original: CodeType, managed: bool = False) -> CodeType:
    """Code of a wrapper for a function with code ``original``; its free variables are named above. ``managed``: it is
    the generator of a context manager."""
    kind = kind_of(original)
    if managed:
        kind = MANAGER if kind == GENERATOR else ASYNC_MANAGER
    code = _compiled(kind, _shape(original), CLASS in original.co_freevars)
    # CO_ITERABLE_COROUTINE: types.coroutine made this generator awaitable
    flags = code.co_flags | (original.co_flags & inspect.CO_ITERABLE_COROUTINE)
    # code of its own for every wrapper: the interpreter specialises code, and a shared one would fit nobody
    return code.replace(co_name=original.co_name, co_flags=flags)


def _shape(code: CodeType) -> Shape:
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    positional, named = list(code.co_varnames[:count]), code.co_varnames[count:last]
    rest = [code.co_varnames[last]] if code.co_flags & inspect.CO_VARARGS else []
    others = [code.co_varnames[last + len(rest)]] if code.co_flags & inspect.CO_VARKEYWORDS else []
    if not all(_usable(name) for name in (*positional, *named, *rest, *others)):
        return _ANY
    starred = [f"*{name}" for name in rest]
    declared = [*positional, *(starred or (["*"] if named else [])), *named]
    if code.co_posonlyargcount:
        declared.insert(code.co_posonlyargcount, "/")
    double = [f"**{name}" for name in others]
    call = [*positional, *starred, *(f"{name}={name}" for name in named), *double]
    members = [*positional, *starred]
    args = rest[0] if members == starred and rest else f"({', '.join(members)}{',' if members else ''})"
    kwargs = others[0] if others and not named else f"{{{', '.join([*(f'{n!r}: {n}' for n in named), *double])}}}"
    return Shape(", ".join([*declared, *double]), ", ".join(call), args, kwargs)


def _usable(name: str) -> bool:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_autotrace") or name == CLASS:
        return False
    return not hasattr(builtins, name) or not any(name in _names(kind).builtins for kind in _BODIES)


class Names(NamedTuple):
    """What the text of a kind of wrapper uses, as the compiler says."""

    own: re.Pattern[str]
    """Its variables, which get a name that no parameter of the original has."""
    builtins: frozenset[str]
    """Builtins: an original with a parameter of such a name gets a wrapper with ``*args, **kwargs``."""


@functools.lru_cache(maxsize=8)
def _names(kind: str) -> Names:
    code = next(code for code in _codes() if code.co_name == _BODIES[kind])
    codes = [code, *_nested(code)]
    variables = {name for code in codes for name in (*code.co_varnames, *code.co_cellvars)} - {"args", "kwargs"}
    own = re.compile(rf"(?<![\w.])({'|'.join(sorted(variables.union(_CELLS)))})\b")
    return Names(own, frozenset(name for code in codes for name in code.co_names if hasattr(builtins, name)))


@functools.lru_cache(maxsize=1)
def _codes() -> list[CodeType]:
    return _nested(compile(_text(), FILE, "exec"))


def _nested(code: CodeType) -> list[CodeType]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [*inner, *(code for one in inner for code in _nested(one))]


@functools.lru_cache(maxsize=1)
def _text() -> str:
    return _TEXT.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=8)
def _body(kind: str) -> tuple[str, str]:
    """Lines up to the body of the wrapper of this kind, blank, so that it keeps its line numbers; and the body."""
    lines = _text().splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(rf"(async )?def {_BODIES[kind]}\(", line))
    end = next(n for n in range(start + 1, len(lines) + 1) if n == len(lines) or lines[n][:1] not in ("", " "))
    body = "\n".join(lines[start + 1 : end])
    return "\n" * (start - 1), _names(kind).own.sub(r"_autotrace_\1", body)


@functools.lru_cache(maxsize=1024)
def _compiled(kind: str, shape: Shape, with_class: bool) -> CodeType:
    blank, body = _body(kind)
    body = body.replace("# cell", f"if 0: {CLASS}" if with_class else "", 1)
    body = _BEGIN.sub(lambda _: f"{shape.args}, {shape.kwargs})", body)
    body = _PASSED.sub(lambda _: f"({shape.call})", body)
    prefix = "async " if kind in (COROUTINE, ASYNC_GENERATOR, ASYNC_MANAGER) else ""
    source = f"def outer({FUNCTION}, {KEY}, {SYS}, {CLASS}):\n{blank} {prefix}def wrapper({shape.declared}):\n{body}\n"
    outer = next(const for const in compile(source, FILE, "exec").co_consts if isinstance(const, CodeType))
    return next(const for const in outer.co_consts if isinstance(const, CodeType))


def takes_one(code: CodeType) -> bool:
    """Whether a function has one parameter and no more, as ``function_for`` wants it."""
    variable = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & variable


def function_for(kind: str, function: Callable[..., Any], name: str, key: str = "") -> Callable[..., Any]:
    """A wrapper of ``function`` for no target but a use of our own, whose one parameter it passes on."""
    code = _compiled(kind, Shape("value", "value", "(value,)", "{}"), False).replace(co_name=name)
    cells = {FUNCTION: CellType(function), KEY: CellType(key), SYS: CellType(sys)}
    return FunctionType(code, {}, name, None, tuple(cells[variable] for variable in code.co_freevars))
