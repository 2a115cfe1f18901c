"""Drive what a plain function returned to be run later: a coroutine, a generator, an asynchronous generator, or a
context manager that ``contextlib`` built from a generator.

The call ends when the returned object ends. So the host gets a driver of the same kind: a wrapper of the same text as
the wrappers of functions (``template``), of a function that hands out the returned object. Not every such object
belongs to the call alone. A function may return a generator that others hold too (an accessor), and a dropped driver
would close the generator under their hands. The reference counter tells whether anybody else holds the object. The
object may have been advanced already, too: a value that the host sends into a driver that has not started would be an
error.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import opcode
import sys
import types
import weakref
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

from autotrace.record import closing, iterators, template
from autotrace.record.context import OpenCall, RetainingCall
from autotrace.record.object_fields import ITERATION, attribute_of, layout_of


def drive(call: OpenCall, result: Any) -> Any:
    """Return a driver for ``result`` (a type of ``LATER``), whose end is the end of ``call``. A ``result`` that
    somebody else holds too, or has advanced, is returned unchanged."""
    if sys.getrefcount(result) > _FRESH:
        closing.close(call, None)
    elif id(type(result)) in _MANAGERS:
        _manage(call, result)
    elif is_unstarted(result):
        return through(call, result)
    else:
        closing.close(call, None)
    return result


def _manage(call: OpenCall, manager: Any) -> None:
    """Let the end of ``manager`` be the end of ``call``, if the ``with`` of ``manager`` was not entered yet."""
    stored = layout_of(type(manager)).stored(manager)
    inner = dict.get(stored, "gen")
    if type(inner) in (GeneratorType, AsyncGeneratorType) and is_unstarted(inner):
        kind = template.MANAGER if type(inner) is GeneratorType else template.ASYNC_MANAGER
        dict.__setitem__(stored, "gen", _managing(kind)(_Pending(call, inner)))
    else:
        closing.close(call, None)


@functools.lru_cache(maxsize=2)
def _managing(kind: str) -> Callable[[_Pending], Any]:
    """Compile the driver of such a generator when the first generator comes: compiling takes two milliseconds."""
    return template.function_for(kind, _Pending.take, "_manager")


_MANAGERS = frozenset(map(id, (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)))
LATER = _MANAGERS.union(map(id, (CoroutineType, GeneratorType, AsyncGeneratorType)))
"""Holds the ``id`` of each type that is driven."""


def through(call: OpenCall, inner: Any) -> Any:
    """Return a driver of ``inner`` (a generator of any kind, not started yet), whose end is the end of ``call``. An
    adapter also puts the driver where the host kept ``inner``."""
    return _through(_Pending(call, inner), inner)


def _through(pending: _Pending, inner: Any) -> Any:
    driver = _driver(inner)(pending)
    driver.__name__, driver.__qualname__ = inner.__name__, inner.__qualname__
    return driver


def adopt(call: OpenCall, result: Any) -> bool:
    """Tells whether ``result`` is a stream, and lets the stream's end be the end of ``call``. A stream (clients of
    model servers) may iterate a generator that the stream stores, or creates on first use. Such a stream iterates a
    driver from now on, and ``call`` ends with the driver. Another iterator is followed. The stream itself stays the
    same object."""
    try:
        layout = layout_of(type(result))
        stored = layout.stored(result)
        inner = dict.get(stored, ITERATION)
        if inner is None and not layout.iterates:
            return bool(adopters) and any(adopter(call, result) for adopter in adopters)
        pending = driver = None
        if inner is None:
            pending, driver = _made_later(call, result)
        elif type(inner) in (GeneratorType, AsyncGeneratorType) and is_unstarted(inner):
            pending = _Pending(call, inner)
            driver = _through(pending, inner)
        if driver is not None:
            dict.__setitem__(stored, ITERATION, driver)
            iterators.watch(result, pending, driver)
            response = dict.get(stored, "response")
            if response is not None:
                iterators.watch(response, pending, driver)  # helpers around the stream close the response alone
            return True
        if any(adopter(call, result) for adopter in adopters):
            return True
        step = iterators.follow(call, result)
        if step is not None:
            iterators.watch(result, step)
        return step is not None
    except Exception as error:
        if call.probe is not None:
            call.probe.trouble("stream", error)
        return False


adopters: list[Callable[[OpenCall, Any], bool]] = []
"""Lists checks of adapters: each tells whether a returned object is still to come and will end the call."""


def _made_later(call: OpenCall, stream: Any) -> tuple[_Pending | None, Any]:
    """Return (pending, driver) for a stream that creates the generator on first use, as a cached property; else (None,
    None)."""
    maker = attribute_of(type(stream), ITERATION)
    if type(maker) is not functools.cached_property:
        return None, None
    driver = _async_generator if attribute_of(type(stream), "__anext__") is not None else _generator
    reference = weakref.ref(stream)  # the stream has the driver, and is to be dropped without the garbage collector

    def made() -> Any:
        stream = reference()
        stored = layout_of(type(stream)).stored(stream)
        driven = dict.pop(stored, ITERATION)  # the maker may copy the stream: no driver in the copy
        try:
            return maker.func(stream)
        finally:
            dict.__setitem__(stored, ITERATION, driven)

    pending = _Pending(call, made)
    return pending, driver(pending)


def is_unstarted(result: Any) -> bool:
    """Tells whether a coroutine or generator was neither advanced nor closed."""
    prefix = "cr" if type(result) is CoroutineType else "ag" if type(result) is AsyncGeneratorType else "gi"
    frame = getattr(result, f"{prefix}_frame")
    if frame is None or getattr(result, f"{prefix}_running"):
        return False
    if _RETURN_GENERATOR is None:
        return bool(frame.f_lasti < 0)
    suspended = getattr(result, f"{prefix}_suspended", None)
    if suspended is None:  # asynchronous generators have ``ag_suspended`` from Python 3.12
        suspended = frame.f_code.co_code[frame.f_lasti] != _RETURN_GENERATOR
    return not suspended


_RETURN_GENERATOR = opcode.opmap.get("RETURN_GENERATOR")
"""Holds the instruction of an unstarted coroutine or generator, from Python 3.11."""


class _Held:
    """Holds the layout of both classes below."""

    __slots__ = ("__weakref__", "call", "inner")


class _Taken(_Held):
    """Holds a started object that was pending."""

    __slots__ = ()


class _Pending(_Held):
    """Holds a call and the object that the call returned, until the object is started. If the pending object is dropped
    before the start, the call ends, and Python warns once, for the driver, that a coroutine was never awaited."""

    __slots__ = ()
    call: OpenCall
    inner: Any

    def __init__(self, call: OpenCall, inner: Any) -> None:
        self.call = call
        self.inner = inner

    def resume(self) -> OpenCall:
        """Begin the driver: make the call current again."""
        call = self.call
        if type(call) is RetainingCall:
            call.followed = False  # the follower was asked already
        try:
            closing.enter(call)
            return call
        except BaseException as error:  # the host's
            closing.fail(call, error)
            raise

    def take(self) -> Any:
        """Return the object that the call returned, or the result of the function that creates the object. Works
        once."""
        inner, self.inner = self.inner, None
        self.__class__ = _Taken  # type: ignore[assignment] # an exception in a ``__del__`` would be lost
        return inner() if type(inner) is FunctionType else inner

    def __del__(self) -> None:
        inner = getattr(self, "inner", None)  # absent if the host raised while this was made
        if inner is not None:
            if type(inner) is CoroutineType:
                inner.close()
            closing.ended(self.call, GeneratorExit())


KEYS = frozenset({"", iterators.CLOSE})
"""Lists the keys of wrappers that belong to no target."""


def resume(key: str, args: tuple[Any, ...]) -> Any:
    """Serve as ``begin`` for a driver, for an iterator's step, or for the end of a stream. The only argument is the
    pending object, the iterator, or the stream."""
    if not args:
        return None
    if key:
        return iterators.closed(args[0])
    return args[0].resume() if type(args[0]) is _Pending else iterators.step(args)


_coroutine = template.function_for(template.COROUTINE, _Pending.take, "_coroutine")
_generator = template.function_for(template.GENERATOR, _Pending.take, "_generator")
_awaitable: Callable[[_Pending], Any] = types.coroutine(
    template.function_for(template.GENERATOR, _Pending.take, "_awaitable")
)
_async_generator = template.function_for(template.ASYNC_GENERATOR, _Pending.take, "_async_generator")


def _driver(result: Any) -> Callable[[_Pending], Any]:
    if type(result) is CoroutineType:
        return _coroutine
    if type(result) is AsyncGeneratorType:
        return _async_generator
    return _awaitable if result.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE else _generator


def _references() -> int:
    """Return the result of ``sys.getrefcount`` in ``drive`` for an object that only the frames of the call hold. The
    references are counted along the same path (wrapper, ``calls.end``, ``drive``), because the count differs between
    releases of Python."""

    def drive_it(result: Any) -> int:
        return sys.getrefcount(result)

    def end_it(result: Any) -> int:
        return drive_it(result)

    def wrapper() -> int:
        result = (_ for _ in ())
        return end_it(result)

    return wrapper()


_FRESH = _references()
