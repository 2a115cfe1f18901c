"""The code that a function is given to have its calls recorded: the text of its kind
(``importlib_bootstrap/wrappers.py``) with the parameters and the free variables of the original.

The function stays the object it was, and only its code is another one: whoever holds it calls the wrapper. Constants of
that code hold the original (a function of its own, with the code that was there before), the target's key, the
module ``sys`` and a few builtins. So it can be pickled by value, and passes calls through in a process without
autotrace.

It has exactly the original's parameters. A wrong call fails where it always failed: at the call, in the caller's frame,
with the same message. It also costs less than ``*args, **kwargs``.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import opcode
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

PLAIN, COROUTINE, GENERATOR, ASYNC_GENERATOR = "plain", "coroutine", "generator", "async_generator"
MANAGER, ASYNC_MANAGER = "manager", "async_manager"
"""A generator, or an asynchronous one, that ``contextlib`` makes a context manager of. Each kind is the name of a
function in the text."""

# In the place of a target's key: the function has no record of its own, and only an exception of it is noted
# (``record.swallowed``). After the first one it is armed, and says that it returned, too. The text has both functions.
WATCHED, ARMED = "watched", "armed"

MARK = "_autotrace"
"""The last constant of a wrapper's code is ``(MARK, key, original, managed)``; see ``code_for``."""

COMPILING = "_autotrace_compiling"
"""A builtin, there once ``torch._dynamo`` is imported: whether torch compiles the code that asks."""

_TEXT = Path(__file__).parent / "importlib_bootstrap" / "wrappers.py"
FILE = str(_TEXT)
"""``co_filename`` of the drivers of ``function_for``."""
_UP = max(len(folder.parts) for folder in (_TEXT.parent, _TEXT.parent.resolve()))
IN_PLACE = (str(_TEXT.parent) + "/.." * _UP, "<autotrace importlib._bootstrap of ")
"""How ``co_filename`` begins of a function that was given another code; that of the original follows. ``warnings`` and
``logging`` pass over a file with these two words in its name, as over the import system's own. The first leads to the
original's file: a program that looks for what lies beside it (hydra's ``main``) finds that. The second is for what is
no file, as ``<stdin>``."""

_FUNCTION, _KEY = "_autotrace_function", "_autotrace_key"
_MADE, _CELL = "_autotrace_made", "_autotrace_cell"
_BUILTINS = (BaseException, Exception, NameError, StopAsyncIteration, StopIteration)
"""What the text uses of them. They are constants of the code: the function's globals may have other builtins, or none,
or other things by these names."""
_CONSTANTS: dict[Any, Any] = {"_autotrace_sys": sys, **{f"_autotrace_{kind.__name__}": kind for kind in _BUILTINS}}
_NAMES = re.compile(rf"(?<![\w.'])({'|'.join(['key', 'sys', *(kind.__name__ for kind in _BUILTINS)])})\b")
"""The constants as the text calls them. ``_body`` writes a string for each, and the code gets the value."""
_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_CALL = re.compile(rf"\b{_FUNCTION}\(\*args, \*\*kwargs\)")
_CALLED = {COROUTINE: "await {}", GENERATOR: "(yield from {})"}
_RAISES = "_autotrace_calls.without_frame(_autotrace_error)\n        raise"
"""A bare ``raise`` adds the wrapper to the traceback again on Python 3.10."""
_BEGIN = re.compile(r"\bargs, kwargs\)")

_MINUS, _LOAD_FAST, _DELETE, _NOTHING, _LOAD_GLOBAL, _LOAD_DEREF, _POP = (
    opcode.opmap[name]
    for name in ("UNARY_NEGATIVE", "LOAD_FAST", "DELETE_FAST", "NOP", "LOAD_GLOBAL", "LOAD_DEREF", "POP_TOP")
)
_IS_HALVED = sys.version_info >= (3, 11)
"""``LOAD_GLOBAL`` counts names in steps of two, and ``LOAD_DEREF`` counts free variables after the local ones."""
_CACHE = bytes(len((lambda: sys).__code__.co_code) - 4 - 2 * _IS_HALVED)
"""Space behind ``LOAD_GLOBAL``: what a function has besides this, ``RETURN_VALUE`` and ``RESUME``."""
_KEEPS_OPENED = sys.version_info[:2] == (3, 11)
"""Python keeps the tuple and the dict of a call with ``*args`` or ``**kwargs`` until the call is over. Python 3.12
releases both first, and Python 3.10 keeps the arguments of every call."""
_OWN_FRAME = frozenset({"_getframe", "currentframe", "getargvalues"})
"""Names in functions that look at their own frames, which would see what ``_opened`` changes."""

Parameters = tuple[str, str, str, str]
"""A function's parameters as source text: between the parentheses of ``def`` (defaults are not part of the code); what
passes them on, each with the minus that ``_released`` looks for; the positional ones as a tuple; the others as a dict.
Their names are ours here. The code has the original's names again."""
_ONE: Parameters = ("_autotrace_p0", "_autotrace_p0", "(_autotrace_p0,)", "{}")


def kind_of(code: CodeType) -> str:
    """Which of the four kinds of function ``code`` belongs to; that of a context manager is a generator."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return ASYNC_GENERATOR
    if code.co_flags & inspect.CO_COROUTINE:
        return COROUTINE
    return GENERATOR if code.co_flags & inspect.CO_GENERATOR else PLAIN


def code_for(function: FunctionType, key: str, managed: bool, apart: bool, guarded: bool) -> CodeType:
    """Code for whoever has the code of ``function``, whose calls are recorded for the target ``key``.

    ``managed``: it is the generator of a context manager. ``apart``: the code makes the function that it calls anew
    each time, and ``function`` only tells what it is like. ``guarded``: it asks first whether torch compiles it.
    """
    original = function.__code__
    kind = kind_of(original)
    text = key if key in (WATCHED, ARMED) else ""
    if managed:
        kind = MANAGER if kind == GENERATOR else ASYNC_MANAGER
    names, count, variable = _names(original), original.co_argcount, original.co_flags & _VARIABLE
    keywords = names[count : count + original.co_kwonlyargcount]
    opens = bool(_KEEPS_OPENED and variable and kind == PLAIN and _OWN_FRAME.isdisjoint(original.co_names))
    parameters = _parameters(count, original.co_posonlyargcount, keywords, variable, opens)
    code = _compiled(kind, parameters, len(original.co_freevars), _MADE if apart or opens else _FUNCTION, guarded, text)
    held = {**_CONSTANTS, _FUNCTION: function, _KEY: key}
    called = _opened(original, len(names)) if opens else original
    constants = [called if type(const) is CodeType else held.get(const, const) for const in code.co_consts]
    named = (*code.co_names, *(name for name in original.co_names if name not in code.co_names))
    instructions = code.co_code + _loads(original, named, code.co_nlocals)
    file, (there, nowhere) = original.co_filename, IN_PLACE
    more: dict[str, Any] = {"co_qualname": function.__qualname__} if sys.version_info >= (3, 11) else {}
    return code.replace(
        co_name=original.co_name,
        co_filename=there + file if file.startswith("/") else f"{nowhere}{file}>",
        co_firstlineno=original.co_firstlineno,
        co_code=instructions,
        co_linetable=_one_line(len(instructions)),
        co_names=named,
        co_consts=(*constants, original, *original.co_consts, (MARK, key, function, managed)),
        co_varnames=(*names, *code.co_varnames[len(names) :]),
        co_freevars=original.co_freevars,
        # CO_ITERABLE_COROUTINE: types.coroutine made this generator awaitable
        co_flags=code.co_flags | (original.co_flags & inspect.CO_ITERABLE_COROUTINE),
        **more,
    )


def function_for(kind: str, function: Callable[..., Any], name: str, key: str = "") -> Callable[..., Any]:
    """A wrapper of ``function`` for no target but a use of our own, whose one parameter it passes on. It is an object
    of its own, which the garbage collector sees through."""
    code = _compiled(kind, _ONE, 0, _CELL, False)
    held = {**_CONSTANTS, _KEY: key}
    code = code.replace(co_name=name, co_consts=tuple(held.get(const, const) for const in code.co_consts))
    return FunctionType(code, {"__name__": __name__}, name, None, (CellType(function),))


def takes_one(code: CodeType) -> bool:
    """Whether a function has one parameter and no more, as ``function_for`` wants it."""
    return code.co_argcount == len(_names(code)) == 1


def _names(code: CodeType) -> tuple[str, ...]:
    """The names of its parameters, in the order of ``co_varnames``."""
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & _VARIABLE).bit_count()
    return code.co_varnames[:count]


def _opened(code: CodeType, count: int) -> CodeType:
    """``code`` that takes each of its ``count`` parameters by position: the tuple for ``*args``, the dict for
    ``**kwargs``."""
    return code.replace(co_argcount=count, co_kwonlyargcount=0, co_flags=code.co_flags & ~_VARIABLE)


def _loads(original: CodeType, names: tuple[str, ...], variables: int) -> bytes:
    """Instructions that are never reached. A reader of instructions finds there each global and each free variable of
    ``original`` (LangGraph and cloudpickle look for both). ``names``, ``variables``: of the code with the instructions.
    """
    units, made, at = original.co_code, bytearray(), -1
    operations, found = units[::2], dict[str, None]()
    while (at := operations.find(_LOAD_GLOBAL, at + 1)) >= 0:
        is_wide = at and operations[at - 1] == opcode.EXTENDED_ARG
        found[original.co_names[(units[2 * at + 1] | (units[2 * at - 1] << 8) * is_wide) >> _IS_HALVED]] = None
    for name in found:
        index = names.index(name) << _IS_HALVED
        made += bytes([opcode.EXTENDED_ARG, index >> 8, _LOAD_GLOBAL, index & 255, *_CACHE, _POP, 0])
    for number in range(len(original.co_freevars)):
        index = number + variables * _IS_HALVED
        made += bytes([opcode.EXTENDED_ARG, index >> 8, _LOAD_DEREF, index & 255, _POP, 0])
    return bytes(made)


@functools.lru_cache(maxsize=1024)
def _parameters(count: int, only: int, keywords: tuple[str, ...], flags: int, opens: bool = False) -> Parameters:
    """``count`` parameters can be passed by position. The first ``only`` cannot be passed by name. ``opens``: what is
    called is ``_opened``."""
    positional = [f"_autotrace_p{number}" for number in range(count)]
    named = {name: f"_autotrace_n{number}" for number, name in enumerate(keywords)}
    rest = ["*_autotrace_rest"] * bool(flags & inspect.CO_VARARGS)
    others = ["**_autotrace_others"] * bool(flags & inspect.CO_VARKEYWORDS)
    declared = [*positional, *(rest or ["*"] * bool(named)), *named.values(), *others]
    if only:
        declared.insert(only, "/")
    if opens:
        passed = [f"-{one.lstrip('*')}" for one in [*positional, *named.values(), *rest, *others]]
    else:
        passed = [f"-{one}" for one in positional] + ["*-_autotrace_rest"] * bool(rest)
        passed += [
            f"{name}=-{own}" if name.isidentifier() and not keyword.iskeyword(name) else f"**{{{name!r}: -{own}}}"
            for name, own in named.items()
        ]
        passed += ["**-_autotrace_others"] * bool(others)
    args = "_autotrace_rest" if rest and not positional else f"({''.join(f'{one}, ' for one in [*positional, *rest])})"
    pairs = [*(f"{name!r}: {own}" for name, own in named.items()), *others]
    kwargs = "_autotrace_others" if others and not named else f"{{{', '.join(pairs)}}}"
    return ", ".join(declared), ", ".join(passed), args, kwargs


def _one_line(size: int) -> bytes:
    """The line table of a code of ``size`` bytes, all of which stands in its first line."""
    if sys.version_info < (3, 11):  # pairs: bytes of code, lines further
        return bytes([254, 0]) * (size // 254) + bytes([size % 254, 0])
    units = size // 2  # 13: a line and no columns, up to eight units an entry
    whole, left = divmod(units, 8)
    return bytes([0x80 | 13 << 3 | 7, 0]) * whole + (bytes([0x80 | 13 << 3 | left - 1, 0]) if left else b"")


_PARTS = {
    COROUTINE: ("plain",),
    ASYNC_GENERATOR: ("generator", "asynchronous"),
    MANAGER: ("generator", "manager"),
    ARMED: ("watched", "armed"),
    ASYNC_MANAGER: ("generator", "asynchronous", "manager"),
}
"""The functions of the text that a wrapper is made of; of one for each other kind, the one of its name."""
_FUNCTION_TEXT = re.compile(r"^(?:async )?def (\w+)\(.*?\):\n(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_PART = re.compile(r"^( *)# part (\w+)\n(.*?)^ *# end\n", re.MULTILINE | re.DOTALL)


@functools.lru_cache(maxsize=1)
def _functions() -> tuple[dict[str, str], re.Pattern[str]]:
    """The bodies of the text's functions, and what finds their own variables."""
    text = _TEXT.read_text(encoding="utf-8")
    codes = compile(text, FILE, "exec").co_consts
    names = {name for code in codes if isinstance(code, CodeType) for name in code.co_varnames} - {"args", "kwargs"}
    own = re.compile(rf"(?<![\w.])({'|'.join(sorted(names | {'function'}))})\b")
    return dict(_FUNCTION_TEXT.findall(text)), own


@functools.lru_cache(maxsize=16)
def _body(kind: str) -> str:
    """The body of the wrapper of this kind. Its variables have a prefix."""
    functions, own = _functions()
    bodies = [functions[name] for name in _PARTS.get(kind, (kind,))]
    others = {name: textwrap.dedent(part) for body in bodies[1:] for _, name, part in _PART.findall(body)}
    body = _PART.sub(
        lambda part: textwrap.indent(others[part[2]], part[1]) if part[2] in others else part[3], bodies[0]
    )
    return _NAMES.sub(r"'_autotrace_\1'", own.sub(r"_autotrace_\1", body))


@functools.lru_cache(maxsize=1024)
def _compiled(kind: str, parameters: Parameters, count: int, callee: str, guarded: bool, text: str = "") -> CodeType:
    """``count``: of free variables. ``callee``: the name of what is called. ``text``: ``WATCHED`` or ``ARMED``."""
    declared, call, args, kwargs = parameters
    body = _body(text or kind)
    free = [f"_autotrace_f{number:03}" for number in range(count)]
    body = body.replace("# before", _before(kind, call, free, callee, guarded), 1)
    if sys.version_info < (3, 11):
        body = body.replace(_RAISES, f"-{_RAISES}")
    body = _BEGIN.sub(lambda _: f"{args}, {kwargs})", body)
    called = _CALLED[kind] if kind == COROUTINE or (text and kind == GENERATOR) else "{}"
    body = _CALL.sub(lambda _: called.format(f"{callee}({call})"), body)
    prefix = "async " if kind in (COROUTINE, ASYNC_GENERATOR, ASYNC_MANAGER) else ""
    text = f"def outer({', '.join([*free, _CELL])}):\n {prefix}def wrapper({declared}):\n{body}\n"
    outer = next(const for const in compile(text, FILE, "exec").co_consts if isinstance(const, CodeType))
    return _released(next(const for const in outer.co_consts if isinstance(const, CodeType)))


def _released(code: CodeType) -> CodeType:
    """``code`` with another instruction for each minus of the text.

    A parameter is deleted as soon as the parameter is loaded to be passed on. What is called is then the only holder of
    its arguments. On Python 3.10, an error is raised again with the traceback that ``errors.without_frame`` returned.
    """
    units = bytearray(code.co_code)
    for at in range(4, len(units), 2):
        if units[at] == _MINUS and units[at - 2] != _LOAD_FAST:
            units[at : at + 4] = (opcode.opmap["UNPACK_SEQUENCE"], 3, opcode.opmap["RERAISE"], 0)
        elif units[at] == _MINUS:
            units[at : at + 2] = (_NOTHING, 0) if units[at - 4] == opcode.EXTENDED_ARG else (_DELETE, units[at - 1])
    return code.replace(co_code=bytes(units), co_stacksize=code.co_stacksize + 2)


def _before(kind: str, call: str, free: list[str], callee: str, guarded: bool) -> str:
    """The first statements. They name the free variables, which the code must have, and make the original where that is
    wanted (of a code that ``code_for`` puts in the place of this one)."""
    uses = "; ".join(free) or "pass"
    make = f"def {_MADE}(): {uses}"
    statements = []
    if guarded and kind in (PLAIN, GENERATOR):
        passed = f"{_MADE}({call})" if kind == PLAIN else f"(yield from {_MADE}({call}))"
        statements.append(f"try: _autotrace_guard = {COMPILING}()")
        statements.append("except '_autotrace_NameError': _autotrace_guard = False")
        statements += ["if _autotrace_guard:", f"    {make}", f"    return {passed}"]
    if callee == _MADE:
        statements.append(make)
    elif free:
        statements.append(f"if 0: {uses}")
    # a name for what is called: the compiler warns of a call of a literal
    statements.append(f"{_FUNCTION} = {_CELL if callee == _CELL else repr(_FUNCTION)}")
    return "\n    ".join(statements)
