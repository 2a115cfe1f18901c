"""The functions left behind on classes and modules: plain, of the same kind as the original, holding it and a key only.

Each closes over the original and a string, and finds the runtime by name at call time, so that it can be pickled by
value into a process without autotrace (there it passes through), survives ``copy.deepcopy``, ``ray.remote`` and every
start method, and is told from the original by nothing but ``__wrapped__``. A ``wrapt.FunctionWrapper`` is lost without
a word in Ray actors: cloudpickle takes the proxy for a function and serialises the inner one.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

MARK = "__autotrace__"
"""Attribute of every wrapper: the key of its target."""

Function = Callable[..., Any]


def wrap(function: Function, key: str) -> Function:
    """A function of the same kind as ``function`` that records its calls for the target ``key``."""
    if inspect.isasyncgenfunction(function):
        template = _async_generator
    elif inspect.isgeneratorfunction(function):
        template = _generator
    elif inspect.iscoroutinefunction(function) and _is_async_def(function):
        template = _coroutine
    else:
        template = _plain
    wrapper = functools.wraps(function)(template(function, key))
    setattr(wrapper, MARK, key)
    marker = getattr(inspect, "markcoroutinefunction", None)
    if template is _plain and inspect.iscoroutinefunction(function) and marker is not None:
        wrapper = marker(wrapper)  # a plain function that was marked as one that returns a coroutine
    return wrapper


def key_of(function: Any) -> str | None:
    """The key ``function`` was wrapped for, or None."""
    attributes = getattr(function, "__dict__", None)
    return attributes.get(MARK) if attributes else None


def _is_async_def(function: Function) -> bool:
    code = getattr(inspect.unwrap(function, stop=lambda f: not hasattr(f, "__wrapped__")), "__code__", None)
    own = getattr(function, "__code__", code)
    return bool(own is not None and own.co_flags & inspect.CO_COROUTINE)


def _plain(function: Function, key: str) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls = sys.modules.get("autotrace.record.calls")
        span = None if calls is None else calls.begin(function, key, args, kwargs)
        if span is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            calls.fail(span, error)  # type: ignore[union-attr]
            raise
        return calls.end(span, result)  # type: ignore[union-attr]

    return wrapper


def _coroutine(function: Function, key: str) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls = sys.modules.get("autotrace.record.calls")
        span = None if calls is None else calls.begin(function, key, args, kwargs)
        if span is None:
            return await function(*args, **kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            calls.fail(span, error)  # type: ignore[union-attr]
            raise
        return calls.end(span, result)  # type: ignore[union-attr]

    return wrapper


def _generator(function: Function, key: str) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls = sys.modules.get("autotrace.record.calls")
        span = None if calls is None else calls.begin_stream(function, key, args, kwargs)
        if span is None:
            return (yield from function(*args, **kwargs))
        return (yield from calls.generator(span, function(*args, **kwargs)))  # type: ignore[union-attr]

    return wrapper


def _async_generator(function: Function, key: str) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        # No reference to the inner generator but this frame's own: SGLang's holds its weight-update lock while
        # suspended, and whoever keeps it blocks weight sync for ever.
        calls = sys.modules.get("autotrace.record.calls")
        span = None if calls is None else calls.begin_stream(function, key, args, kwargs)
        inner = function(*args, **kwargs)
        final = None
        try:
            async for value in inner:
                if span is not None:
                    if final is None:
                        span, final = calls.item(span, value)  # type: ignore[union-attr]
                    else:  # one of an engine's many chunks: nothing is looked at but whether it is the last
                        span.items += 1
                        try:
                            last = final(value)
                        except Exception:
                            last = False
                        if last:
                            calls.finish(span, value)  # type: ignore[union-attr]
                            span = None
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        value = await inner.athrow(error)
                    else:
                        if sent is None:
                            break
                        value = await inner.asend(sent)
                if final is None and span is not None:
                    calls.enter(span)  # type: ignore[union-attr]
        except StopAsyncIteration:
            pass
        except BaseException as error:
            if span is not None:
                calls.ended(span, error)  # type: ignore[union-attr]
            raise
        if span is not None:
            calls.exhausted(span, None)  # type: ignore[union-attr]

    return wrapper
