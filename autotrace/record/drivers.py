"""What a plain function returned to be run later: a coroutine, a generator, an asynchronous generator.

The call is over when that is over, so it comes back driven by one of its own kind. Not everything of that type is the
call's, though: a function may return a generator that others hold too (an accessor), and then a driver that is dropped
would close it under their hands. Whether anybody else holds it is asked of the reference counter.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from autotrace.record import calls
from autotrace.record.frames import transparent

if TYPE_CHECKING:
    from autotrace.record.context import OpenCall

KINDS = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})


def drive(span: OpenCall, result: Any) -> Any:
    """``result`` (of one of ``KINDS``), which ends ``span`` when it ends; as it is if somebody else holds it too."""
    if sys.getrefcount(result) > _FRESH:
        calls.close(span, None)
        return result
    driver = _driver(result)(_Pending(span, result))
    driver.__name__, driver.__qualname__ = result.__name__, result.__qualname__
    return driver


def stream(span: OpenCall, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """``inner``, whose end is the end of ``span``: for an adapter that puts it where the host kept ``inner``."""
    driven: AsyncGenerator[Any, Any] = _async_generator(_Pending(span, inner))
    return driven


def _driver(result: Any) -> Callable[[_Pending], Any]:
    if type(result) is CoroutineType:
        return _coroutine
    if type(result) is AsyncGeneratorType:
        return _async_generator
    return _awaitable if result.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE else _generator


class _Pending:
    """A call and what it returned, until that is started. Dropped before: the call ends, and Python says only once, of
    the driver, that a coroutine was never awaited."""

    __slots__ = ("inner", "span")

    def __init__(self, span: OpenCall, inner: Any) -> None:
        self.span = span
        self.inner = inner

    def started(self) -> tuple[OpenCall, Any]:
        inner, self.inner = self.inner, None
        return self.span, inner

    def __del__(self) -> None:
        if self.inner is not None:
            if type(self.inner) is CoroutineType:
                self.inner.close()
            calls.ended(self.span, GeneratorExit())


@transparent
async def _coroutine(pending: _Pending) -> Any:
    span, inner = pending.started()
    calls.enter(span)
    coroutine: Coroutine[Any, Any, Any] = inner
    del inner
    try:
        result = await coroutine
    except BaseException as error:
        calls.fail(span, error)
        raise
    calls.exhausted(span, result)
    return result


@transparent
def _generator(pending: _Pending) -> Generator[Any, Any, Any]:
    # the same in the wrappers of generator functions: see patch.template for why it is written like this
    watched: OpenCall | None
    watched, inner = pending.started()
    final: Callable[[Any], Any] | None = None
    sent: Any = None
    thrown: list[BaseException] = []
    item: list[Any] = []
    calls.enter(watched)
    try:
        while True:
            if thrown:
                item.append(inner.throw(thrown.pop()))
            else:
                item.append(inner.send(sent))
                sent = None
            if watched is not None:
                watched, final = _seen(watched, final, item[0])
            try:
                sent = yield item.pop()
            except BaseException as error:
                thrown.append(error)
            if final is None and watched is not None:
                calls.enter(watched)
    except StopIteration as stop:
        if watched is not None:
            calls.exhausted(watched, stop.value)
        return stop.value
    except BaseException as error:
        if watched is not None:
            calls.ended(watched, error)
        raise


_awaitable: Callable[[_Pending], Any] = types.coroutine(
    types.FunctionType(_generator.__code__, globals(), "_awaitable")
)


@transparent
async def _async_generator(pending: _Pending) -> AsyncGenerator[Any, Any]:
    watched: OpenCall | None
    watched, inner = pending.started()
    final: Callable[[Any], Any] | None = None
    sent: Any = None
    thrown: list[BaseException] = []
    item: list[Any] = []
    calls.enter(watched)
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    step = inner.__anext__()
    sys.set_asyncgen_hooks(*hooks)
    try:
        while True:
            if step is not None:
                item.append(await step)
                step = None
            elif thrown:
                item.append(await inner.athrow(thrown.pop()))
            else:
                item.append(await inner.asend(sent))
                sent = None
            if watched is not None:
                watched, final = _seen(watched, final, item[0])
            try:
                sent = yield item.pop()
            except BaseException as error:
                thrown.append(error)
            if final is None and watched is not None:
                calls.enter(watched)
    except StopAsyncIteration:
        if watched is not None:
            calls.exhausted(watched, None)
    except BaseException as error:
        if watched is not None:
            calls.ended(watched, error)
        raise


def _seen(span: OpenCall, final: Any, value: Any) -> tuple[OpenCall | None, Any]:
    if final is None:
        return calls.item(span, value)
    span.items += 1
    try:
        last = final(value)
    except Exception:
        last = False
    if last:
        calls.finish(span, value)
        return None, final
    return span, final


def _references() -> int:
    """What ``sys.getrefcount`` says in ``drive`` of what nobody holds but the frames of the call: counted by going the
    same way (wrapper, ``calls.end``, ``drive``), as it differs between releases of Python."""

    def drive_it(result: Any) -> int:
        return sys.getrefcount(result)

    def end_it(result: Any) -> int:
        return drive_it(result)

    def wrapper() -> int:
        result = (_ for _ in ())
        return end_it(result)

    return wrapper()


_FRESH = _references()
