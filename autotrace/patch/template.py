"""The source of a wrapper: one text per kind of function and shape of its parameters, compiled once.

A wrapper has exactly the parameters of its original, so a wrong call fails where it always failed: at the call, in the
caller's frame, with the same message, also for coroutine and generator functions (a ``*args, **kwargs`` wrapper would
fail at the first ``await``). It also costs less: no keyword dictionary is built and taken apart.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from types import CodeType
from typing import NamedTuple

from autotrace.record.frames import FILE

FUNCTION, KEY, SYS = "_autotrace_function", "_autotrace_key", "_autotrace_sys"
"""Names of the closure: the original, its target's key, and the module ``sys``, which is pickled by name."""

CLASS = "__class__"
"""A fourth cell, shared with the original, where that uses ``super()``: attrs and dataclasses with slots make a second
class and put it into the cells of its methods' closures, and would not find the original's."""

PLAIN, COROUTINE, GENERATOR, ASYNC_GENERATOR = "plain", "coroutine", "generator", "async generator"


class Shape(NamedTuple):
    """A function's parameters as source text."""

    declared: str
    """Between the parentheses of ``def``; defaults are no part of the code."""
    call: str
    """What passes them on."""
    args: str
    """The positional ones as a tuple."""
    kwargs: str
    """The others as a dict."""


_ANY = Shape(*("*_autotrace_args, **_autotrace_kwargs",) * 2, "_autotrace_args", "_autotrace_kwargs")
"""For parameters that no source text can name."""

_BODIES = {
    PLAIN: """
        {cell}
        _autotrace_calls = {sys}.modules.get("autotrace.record.calls")
        _autotrace_span = None
        if _autotrace_calls is not None:
            _autotrace_span = _autotrace_calls.begin({function}, {key}, {args}, {kwargs})
        if _autotrace_span is None:
            return {function}({call})
        try:
            _autotrace_result = {function}({call})
        except BaseException as _autotrace_error:
            _autotrace_calls.fail(_autotrace_span, _autotrace_error)
            raise
        return _autotrace_calls.end(_autotrace_span, _autotrace_result)
""",
    COROUTINE: """
        {cell}
        _autotrace_calls = {sys}.modules.get("autotrace.record.calls")
        _autotrace_span = None
        if _autotrace_calls is not None:
            _autotrace_span = _autotrace_calls.begin({function}, {key}, {args}, {kwargs})
        if _autotrace_span is None:
            return await {function}({call})
        try:
            _autotrace_result = await {function}({call})
        except BaseException as _autotrace_error:
            _autotrace_calls.fail(_autotrace_span, _autotrace_error)
            raise
        return _autotrace_calls.end(_autotrace_span, _autotrace_result)
""",
    # What is yielded is popped from a list and what is sent is dropped at once, so a suspended wrapper keeps neither
    # alive. What is thrown in is passed on outside of the ``except``, or it would become the ``__context__`` of
    # whatever the original raises later; GeneratorExit too: the original may answer it with a value or an error.
    GENERATOR: """
        {cell}
        _autotrace_calls = {sys}.modules.get("autotrace.record.calls")
        _autotrace_span = None
        if _autotrace_calls is not None:
            _autotrace_span = _autotrace_calls.begin_stream({function}, {key}, {args}, {kwargs})
        if _autotrace_span is None:
            return (yield from {function}({call}))
        _autotrace_inner = {function}({call})
        _autotrace_final = _autotrace_sent = None
        _autotrace_thrown = []
        _autotrace_item = []
        try:
            while True:
                if _autotrace_thrown:
                    _autotrace_item.append(_autotrace_inner.throw(_autotrace_thrown.pop()))
                else:
                    _autotrace_item.append(_autotrace_inner.send(_autotrace_sent))
                    _autotrace_sent = None
                if _autotrace_span is not None:
                    if _autotrace_final is None:
                        _autotrace_span, _autotrace_final = _autotrace_calls.item(_autotrace_span, _autotrace_item[0])
                    else:  # one of an engine's many chunks: nothing is looked at but whether it is the last
                        _autotrace_span.items += 1
                        try:
                            _autotrace_last = _autotrace_final(_autotrace_item[0])
                        except Exception:
                            _autotrace_last = False
                        if _autotrace_last:
                            _autotrace_calls.finish(_autotrace_span, _autotrace_item[0])
                            _autotrace_span = None
                try:
                    _autotrace_sent = yield _autotrace_item.pop()
                except BaseException as _autotrace_error:
                    _autotrace_thrown.append(_autotrace_error)
                if _autotrace_final is None and _autotrace_span is not None:
                    _autotrace_calls.enter(_autotrace_span)
        except StopIteration as _autotrace_stop:
            if _autotrace_span is not None:
                _autotrace_calls.exhausted(_autotrace_span, _autotrace_stop.value)
            return _autotrace_stop.value
        except BaseException as _autotrace_error:
            if _autotrace_span is not None:
                _autotrace_calls.ended(_autotrace_span, _autotrace_error)
            raise
""",
    # No reference to the inner generator but this frame's own: SGLang's holds its weight-update lock while suspended,
    # and whoever keeps it blocks weight sync for ever. The event loop must not know it either (its hooks are off for
    # the first step): ``loop.shutdown_asyncgens`` would close both at once, and one of them would be "already running".
    ASYNC_GENERATOR: """
        {cell}
        _autotrace_calls = {sys}.modules.get("autotrace.record.calls")
        _autotrace_span = None
        if _autotrace_calls is not None:
            _autotrace_span = _autotrace_calls.begin_stream({function}, {key}, {args}, {kwargs})
        _autotrace_inner = {function}({call})
        _autotrace_final = _autotrace_sent = None
        _autotrace_thrown = []
        _autotrace_item = []
        _autotrace_hooks = {sys}.get_asyncgen_hooks()
        {sys}.set_asyncgen_hooks(None, None)
        _autotrace_step = _autotrace_inner.__anext__()
        {sys}.set_asyncgen_hooks(*_autotrace_hooks)
        try:
            while True:
                if _autotrace_thrown:
                    _autotrace_item.append(await _autotrace_inner.athrow(_autotrace_thrown.pop()))
                elif _autotrace_sent is not None:
                    _autotrace_item.append(await _autotrace_inner.asend(_autotrace_sent))
                    _autotrace_sent = None
                elif _autotrace_step is not None:
                    _autotrace_item.append(await _autotrace_step)
                    _autotrace_step = None
                else:  # ``async for`` is the cheapest way to take a step
                    async for _autotrace_next in _autotrace_inner:
                        _autotrace_item.append(_autotrace_next)
                        _autotrace_next = None
                        if _autotrace_span is not None:
                            if _autotrace_final is None:
                                break
                            # one of an engine's many chunks: nothing is looked at but whether it is the last
                            _autotrace_span.items += 1
                            try:
                                _autotrace_last = _autotrace_final(_autotrace_item[0])
                            except Exception:
                                _autotrace_last = False
                            if _autotrace_last:
                                _autotrace_calls.finish(_autotrace_span, _autotrace_item[0])
                                _autotrace_span = None
                        try:
                            _autotrace_sent = yield _autotrace_item.pop()
                        except BaseException as _autotrace_error:
                            _autotrace_thrown.append(_autotrace_error)
                            break
                        if _autotrace_sent is not None:
                            break
                    else:
                        break
                    if not _autotrace_item:
                        continue
                if _autotrace_span is not None:
                    _autotrace_span, _autotrace_final = _autotrace_calls.item(_autotrace_span, _autotrace_item[0])
                try:
                    _autotrace_sent = yield _autotrace_item.pop()
                except BaseException as _autotrace_error:
                    _autotrace_thrown.append(_autotrace_error)
                if _autotrace_final is None and _autotrace_span is not None:
                    _autotrace_calls.enter(_autotrace_span)
        except StopAsyncIteration:
            pass
        except BaseException as _autotrace_error:
            if _autotrace_span is not None:
                _autotrace_calls.ended(_autotrace_span, _autotrace_error)
            raise
        if _autotrace_span is not None:
            _autotrace_calls.exhausted(_autotrace_span, None)
""",
}


def kind_of(code: CodeType) -> str:
    """Which of the four kinds of function ``code`` belongs to."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return ASYNC_GENERATOR
    if code.co_flags & inspect.CO_COROUTINE:
        return COROUTINE
    return GENERATOR if code.co_flags & inspect.CO_GENERATOR else PLAIN


def code_for(original: CodeType) -> CodeType:
    """Code of a wrapper for a function with code ``original``; its free variables are named above."""
    kind = kind_of(original)
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
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_autotrace") and name != CLASS


@functools.lru_cache(maxsize=1024)
def _compiled(kind: str, shape: Shape, with_class: bool) -> CodeType:
    text = _BODIES[kind].format(
        cell=f"if 0: {CLASS}" if with_class else "", function=FUNCTION, key=KEY, sys=SYS,
        call=shape.call, args=shape.args, kwargs=shape.kwargs,
    )  # fmt: skip
    prefix = "async " if kind in (COROUTINE, ASYNC_GENERATOR) else ""
    source = f"def outer({FUNCTION}, {KEY}, {SYS}, {CLASS}):\n    {prefix}def wrapper({shape.declared}):{text}"
    outer = next(const for const in compile(source, FILE, "exec").co_consts if isinstance(const, CodeType))
    return next(const for const in outer.co_consts if isinstance(const, CodeType))
