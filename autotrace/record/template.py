"""Build the code that records the calls of a function: the text of the function's kind
(``importlib_bootstrap/wrappers.py``) with the parameters and the free variables of the original.

The function stays the same object with another code, so every holder of the function calls the wrapper. Constants of
the code hold the original (a function with the code that was there before), the target's key, the module ``sys`` and a
few builtins. So the function can be pickled by value, and passes calls through in a process without autotrace.

The code has exactly the original's parameters. A wrong call fails as before: at the call, in the caller's frame, with
the same message. The same parameters also cost less than ``*args, **kwargs``.
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
"""Name a generator, and an asynchronous generator, that ``contextlib`` turns into a context manager. Each kind is the
name of a function in the text."""

# Stand for a target's key: calls of the function are not recorded, and only an exception is noted
# (``record.swallowed``). After the first exception the function is armed and also notes returns. The text has both.
WATCHED, ARMED = "watched", "armed"

MARK = "_autotrace"
"""The last constant of a wrapper's code is ``(MARK, key, original, managed)``; see ``code_for``."""

COMPILING = "_autotrace_compiling"
"""Name a builtin that exists once ``torch._dynamo`` is imported; tells whether torch compiles the calling code."""

_TEXT = Path(__file__).parent / "importlib_bootstrap" / "wrappers.py"
FILE = str(_TEXT)
"""``co_filename`` of the drivers of ``function_for``."""
_UP = max(len(folder.parts) for folder in (_TEXT.parent, _TEXT.parent.resolve()))
IN_PLACE = (str(_TEXT.parent) + "/.." * _UP, "<autotrace importlib._bootstrap of ")
"""Begin the ``co_filename`` of a placed code; the original's ``co_filename`` follows. ``warnings`` and ``logging`` pass
over a file with these two words in the name, as over files of the import system. The first form leads to the original's
file, so a program finds the files beside (hydra's ``main``). The second form is for names such as ``<stdin>``."""

_FUNCTION, _KEY = "_autotrace_function", "_autotrace_key"
_MADE, _CELL = "_autotrace_made", "_autotrace_cell"
_BUILTINS = (BaseException, Exception, NameError, StopAsyncIteration, StopIteration)
"""List the builtins in the text. The builtins are constants of the code, because the function's globals may have other
builtins, no builtins, or other values under these names."""
_CONSTANTS: dict[Any, Any] = {"_autotrace_sys": sys, **{f"_autotrace_{kind.__name__}": kind for kind in _BUILTINS}}
_NAMES = re.compile(rf"(?<![\w.'])({'|'.join(['key', 'sys', *(kind.__name__ for kind in _BUILTINS)])})\b")
"""Find the constants in the text. ``_body`` writes a string for each constant, and the code gets the value."""
_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_CALL = re.compile(rf"\b{_FUNCTION}\(\*args, \*\*kwargs\)")
_CALLED = {COROUTINE: "await {}", GENERATOR: "(yield from {})"}
_RAISES = "_autotrace_calls.without_frame(_autotrace_error)\n        raise"
"""A bare ``raise`` adds the wrapper to the traceback again on Python 3.10."""
_BEGIN = re.compile(r"\bargs, kwargs\)")

_MINUS, _DELETE, _NOTHING, _LOAD_GLOBAL, _LOAD_DEREF, _POP = (
    opcode.opmap[name] for name in ("UNARY_NEGATIVE", "DELETE_FAST", "NOP", "LOAD_GLOBAL", "LOAD_DEREF", "POP_TOP")
)
_LOADS = frozenset(opcode.opmap[name] for name in ("LOAD_FAST", "LOAD_FAST_CHECK") if name in opcode.opmap)
"""List the instructions that load a parameter and hold a reference. Python 3.12 checks each local variable after the
first 64."""
_IS_HALVED = sys.version_info >= (3, 11)
"""Tell whether ``LOAD_GLOBAL`` counts names in steps of two, and ``LOAD_DEREF`` counts free variables after locals."""
_CACHE = bytes(len((lambda: sys).__code__.co_code) - 4 - 2 * _IS_HALVED)
"""Fill the space behind ``LOAD_GLOBAL``: the bytes of a function without ``LOAD_GLOBAL``, ``RETURN_VALUE`` and
``RESUME``."""
_KEEPS_OPENED = sys.version_info[:2] == (3, 11)
"""Tell whether Python keeps the tuple and the dict of a call with ``*args`` or ``**kwargs`` until the call is over.
Python 3.12 releases both first, and Python 3.10 keeps the arguments of every call."""
_OWN_FRAME = frozenset({"_getframe", "currentframe", "getargvalues"})
"""List names in functions that look at their own frames, and so would see the changes of ``_opened``."""

Parameters = tuple[str, str, str, str]
"""Hold a function's parameters as four source texts: between the parentheses of ``def`` (defaults are not part of the
code); the arguments of the call inside, each with the minus that ``_released`` finds; positional parameters as a tuple;
other parameters as a dict. The texts have autotrace's names, and the code has the original's names again."""
_ONE: Parameters = ("_autotrace_p0", "_autotrace_p0", "(_autotrace_p0,)", "{}")


def kind_of(code: CodeType) -> str:
    """Return which of the four kinds of function ``code`` belongs to; a context manager's code is a generator's."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return ASYNC_GENERATOR
    if code.co_flags & inspect.CO_COROUTINE:
        return COROUTINE
    return GENERATOR if code.co_flags & inspect.CO_GENERATOR else PLAIN


def code_for(function: FunctionType, key: str, managed: bool, apart: bool, guarded: bool) -> CodeType:
    """Build the code for a function with the code of ``function``, whose calls are recorded for the target ``key``.

    ``managed``: ``function`` is the generator of a context manager. ``apart``: each call builds the function to call
    anew, in the likeness of ``function``. ``guarded``: each call first asks whether torch compiles the code.
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
    """Build a wrapper of ``function``, which has one parameter, for a use of autotrace without a target. The garbage
    collector sees through the wrapper."""
    code = _compiled(kind, _ONE, 0, _CELL, False)
    held = {**_CONSTANTS, _KEY: key}
    code = code.replace(co_name=name, co_consts=tuple(held.get(const, const) for const in code.co_consts))
    return FunctionType(code, {"__name__": __name__}, name, None, (CellType(function),))


def takes_one(code: CodeType) -> bool:
    """Return whether a function has exactly one parameter, as ``function_for`` needs."""
    return code.co_argcount == len(_names(code)) == 1


def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names of the parameters, in the order of ``co_varnames``."""
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & _VARIABLE).bit_count()
    return code.co_varnames[:count]


def _opened(code: CodeType, count: int) -> CodeType:
    """Copy ``code`` with each of the ``count`` parameters by position: the tuple for ``*args``, the dict for
    ``**kwargs``."""
    return code.replace(co_argcount=count, co_kwonlyargcount=0, co_flags=code.co_flags & ~_VARIABLE)


def _loads(original: CodeType, names: tuple[str, ...], variables: int) -> bytes:
    """Return instructions that never run. A reader of instructions finds each global and each free variable of
    ``original`` there (LangGraph and cloudpickle look for both). ``names``, ``variables``: names and local variables of
    the code that gets the instructions."""
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
    """Return the texts for ``count`` parameters that can be passed by position. The first ``only`` parameters cannot be
    passed by name. ``opens``: the call inside is of ``_opened`` code."""
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
    """Return the line table of a code of ``size`` bytes that is on a single line."""
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
"""Map a kind to the functions of the text for a wrapper; any other kind has one function, with the kind's name."""
_FUNCTION_TEXT = re.compile(r"^(?:async )?def (\w+)\(.*?\):\n(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_PART = re.compile(r"^( *)# part (\w+)\n(.*?)^ *# end\n", re.MULTILINE | re.DOTALL)


@functools.lru_cache(maxsize=1)
def _functions() -> tuple[dict[str, str], re.Pattern[str]]:
    """Return the bodies of the text's functions, and a pattern that finds variables of the bodies."""
    text = _TEXT.read_text(encoding="utf-8")
    codes = compile(text, FILE, "exec").co_consts
    names = {name for code in codes if isinstance(code, CodeType) for name in code.co_varnames} - {"args", "kwargs"}
    own = re.compile(rf"(?<![\w.])({'|'.join(sorted(names | {'function'}))})\b")
    return dict(_FUNCTION_TEXT.findall(text)), own


@functools.lru_cache(maxsize=16)
def _body(kind: str) -> str:
    """Return the body of a wrapper of this kind. Variables of the body have a prefix."""
    functions, own = _functions()
    bodies = [functions[name] for name in _PARTS.get(kind, (kind,))]
    others = {name: textwrap.dedent(part) for body in bodies[1:] for _, name, part in _PART.findall(body)}
    body = _PART.sub(
        lambda part: textwrap.indent(others[part[2]], part[1]) if part[2] in others else part[3], bodies[0]
    )
    return _NAMES.sub(r"'_autotrace_\1'", own.sub(r"_autotrace_\1", body))


@functools.lru_cache(maxsize=1024)
def _compiled(kind: str, parameters: Parameters, count: int, callee: str, guarded: bool, text: str = "") -> CodeType:
    """Compile a wrapper. ``count``: number of free variables. ``callee``: name of the called function. ``text``:
    ``WATCHED``, ``ARMED`` or empty."""
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
    """Copy ``code`` with another instruction for each minus of the text.

    A parameter is deleted as soon as the parameter is loaded to be passed on. The called function is then the only
    holder of the arguments. On Python 3.10, an error is raised again with the traceback that ``errors.without_frame``
    returned.
    """
    units = bytearray(code.co_code)
    for at in range(4, len(units), 2):
        if units[at] != _MINUS:
            continue
        if units[at - 2] in _LOADS and units[at - 4] != opcode.EXTENDED_ARG:
            units[at : at + 2] = _DELETE, units[at - 1]
        elif units[at - 2] not in _LOADS and sys.version_info < (3, 11):
            units[at : at + 4] = (opcode.opmap["UNPACK_SEQUENCE"], 3, opcode.opmap["RERAISE"], 0)
        else:
            units[at : at + 2] = _NOTHING, 0
    return code.replace(co_code=bytes(units), co_stacksize=code.co_stacksize + 2)


def _before(kind: str, call: str, free: list[str], callee: str, guarded: bool) -> str:
    """Return the first statements. The statements name the free variables, so the code has these, and build the
    original for a call that needs a new one (``code_for`` puts the original's code there)."""
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
    # the called function has a name: the compiler warns about a call of a literal
    statements.append(f"{_FUNCTION} = {_CELL if callee == _CELL else repr(_FUNCTION)}")
    return "\n    ".join(statements)
