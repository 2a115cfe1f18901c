"""What the wrappers call: ``begin`` before the call, ``end`` or ``fail`` after it, ``item`` for what a generator yields.

A wrapper finds this module by name (``sys.modules``) at each call and holds nothing else of autotrace, so it can be
pickled by value into a process that has no autotrace. Nothing here raises, blocks, or takes a lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from autotrace.record import flusher, ids, sampling
from autotrace.record.context import Span, Trace, current, stand_in
from autotrace.record.fields import ABSENT, first
from autotrace.record.probe import Probe
from autotrace.record.snapshot import Limits, snapshot

probes: dict[str, Probe] = {}
"""Targets of this process by key, filled when the plan is loaded."""

decide: sampling.Decision | None = None
"""Whether a trajectory is recorded; None: every one is."""

compiling: Callable[[], bool] | None = None
"""``torch.compiler.is_compiling`` once torch is imported: inside a compiled region nothing may be recorded."""

epoch = 0
"""Counts forks; a span of another epoch belongs to the parent process."""

CLOSED = -1
"""Epoch of a span that is closed: a second close does nothing."""

_LATER = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
_ERROR_LIMITS = Limits(2, 16)
_monotonic_ns = time.monotonic_ns
_put = flusher.put


def begin(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Span | None:
    """Open a span and make it current; None: call ``function`` as if nothing were here."""
    if compiling is not None and compiling():
        return None
    span = _open(function, key, args, kwargs)
    if span is not None:
        span.token = current.set(span)
    return span


def begin_stream(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Span | None:
    """``begin`` for generators: the span is not made current, a context variable must not be held across a ``yield``."""
    if compiling is not None and compiling():
        return None
    span = _open(function, key, args, kwargs)
    return span if span is None or span.recorded else None


def _open(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Span | None:
    probe = probes.get(key)
    if probe is None or probe.off:
        return None
    parent = current.get()
    if parent is not None:
        if not parent.recorded:
            return None
        if probe.subclasses and parent.probe is probe and args and _is_super_call(parent, function, args[0]):
            return None
    probe.calls += 1
    if probe.counted:
        return None
    try:
        binder = probe.binders.get(id(getattr(function, "__code__", function)))
        if binder is None:
            binder = probe.binder(function)
        attributes = prompt = known = None
        if probe.knows:
            known = binder.bind(args, kwargs)
            if binder.method and args:
                known["self"] = args[0]
            if probe.attributes:
                attributes = probe.read(probe.attributes, known)
            if probe.prompt:
                prompt = _tokens(first(probe.prompt, known))
        if parent is None or probe.root:
            if flusher.full() or (probe.root and decide is not None and not decide(attributes or {})):
                return stand_in(b"", 0, recorded=False)
            span = Span(ids.next_span_id(), Trace(ids.new_trace_id()), 0, probe, function, epoch)
        else:
            span = Span(ids.next_span_id(), parent.trace, parent.id, probe, function, epoch)
        if binder.method and args:
            span.owner = id(args[0])
        if probe.keeps:
            span.known = known
        _put((flusher.OPEN, span, probe.inputs(binder, args, kwargs), attributes, prompt, _monotonic_ns()))
        return span
    except Exception as error:
        probe.trouble("begin", error)
        return None


def _is_super_call(parent: Span, function: Any, owner: Any) -> bool:
    """Whether this is the base method that the override being recorded calls through ``super()``."""
    return parent.owner == id(owner) and parent.function is not function


def end(span: Span, result: Any) -> Any:
    """Close ``span`` with its result, which is returned. A result that is itself still to run (a coroutine or generator
    that a plain function returned) comes back driven by a wrapper of its own kind, and the span ends with it."""
    _leave(span)
    if type(result) in _LATER:
        return _later(span, result)
    close(span, result)
    return result


def close(span: Span, result: Any) -> None:
    """Record that the call ended well."""
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    at = _monotonic_ns()
    try:
        response = logprobs = mask = attributes = None
        skip = 0
        if probe.reads_result:
            known = dict(span.known) if span.known is not None else {}
            known["result"] = result
            if probe.response:
                response = _tokens(first(probe.response, known))
                if probe.late_prompt and response is not None:
                    head = _tokens(first(probe.late_prompt, known)) or []
                    response, skip = head + response, len(head)
            if probe.logprobs:
                logprobs = _tokens(first(probe.logprobs, known))
            if probe.mask:
                mask = _tokens(first(probe.mask, known))
            if probe.late:
                attributes = probe.read(probe.late, known)
            if probe.facts:
                for name, value in (probe.read(probe.facts, known) or {}).items():
                    _put((flusher.FACT, span.trace.id, None, name, value, at))
        _put((flusher.CLOSE, span, "OK", probe.output(result), attributes, None, response, logprobs, mask, at, skip))
    except Exception as error:
        probe.trouble("end", error)
        _put((flusher.CLOSE, span, "OK", None, None, None, None, None, None, at, 0))
    span.known = None


def fail(span: Span, error: BaseException) -> None:
    """Record that the call ended with ``error``; the caller raises it."""
    _leave(span)
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    at = _monotonic_ns()
    try:
        _put((flusher.CLOSE, span, _status(error), None, None, _described(error), None, None, None, at, 0))
        if probe.facts:
            known = dict(span.known or {})
            for name, value in (probe.read(probe.facts, known) or {}).items():
                _put((flusher.FACT, span.trace.id, None, name, value, at))
    except Exception as again:
        probe.trouble("fail", again)
    span.known = None


def item(span: Span, value: Any) -> Span | None:
    """A generator yielded ``value``. None: that was the final item (``final`` of the target), the span is closed."""
    probe = span.probe
    if span.items == 0:
        span.first_item_at = _monotonic_ns()
    span.items += 1
    if probe is None or not probe.final:
        return span
    try:
        known = {"item": value}
        for path in probe.final:
            found = path.read(known)
            if found is not ABSENT and found:
                close(span, value)
                return None
    except Exception as error:
        probe.trouble("item", error)
    return span


def _leave(span: Span) -> None:
    token = span.token
    if token is not None:
        span.token = None
        try:
            current.reset(token)
        except ValueError:  # the host drives this coroutine in several contexts; ours is not the current one
            pass


def _later(span: Span, result: Any) -> Any:
    if type(result) is CoroutineType:
        return _coroutine(span, result)
    if type(result) is GeneratorType:
        return generator(span, result)
    return _async_generator(span, result)


async def _coroutine(span: Span, coroutine: Coroutine[Any, Any, Any]) -> Any:
    span.token = current.set(span)
    try:
        result = await coroutine
    except BaseException as error:
        fail(span, error)
        raise
    _leave(span)
    close(span, result)
    return result


def generator(span: Span, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """``yield from inner``, recording its end; items are looked at one by one only if the target asks (``final``)."""
    try:
        result = yield from (each(span, inner) if span.probe is not None and span.probe.final else inner)
    except BaseException as error:
        ended(span, error)
        raise
    close(span, result)
    return result


def each(span: Span, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """``yield from generator``, telling ``item`` about each value (PEP 380, spelled out)."""
    watched: Span | None = span
    try:
        value = next(generator)
        while True:
            if watched is not None:
                watched = item(watched, value)
            try:
                sent = yield value
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                value = generator.throw(error)
            else:
                value = next(generator) if sent is None else generator.send(sent)
    except StopIteration as stop:
        return stop.value


async def _async_generator(span: Span | None, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    try:
        value = await inner.__anext__()
        while True:
            if span is not None:
                span = item(span, value)
            try:
                sent = yield value
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:
                value = await inner.athrow(error)
            else:
                value = await (inner.__anext__() if sent is None else inner.asend(sent))
    except StopAsyncIteration:
        if span is not None:
            close(span, None)
    except BaseException as error:
        if span is not None:
            ended(span, error)
        raise


def ended(span: Span, error: BaseException) -> None:
    """A generator was left by ``error``: closing it early is the caller's right, not an error."""
    if isinstance(error, GeneratorExit):
        if span.epoch != epoch:
            return
        span.epoch = CLOSED
        _put((flusher.CLOSE, span, "CANCELLED", None, None, None, None, None, None, _monotonic_ns(), 0))
    else:
        fail(span, error)


def _status(error: BaseException) -> str:
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return "CANCELLED"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        return "TIMEOUT"
    return "ERROR"


_MAX_FRAMES = 40


def _described(error: BaseException) -> tuple[str, Any, list[tuple[str, int | None, str]]]:
    """Type, arguments and frames, without keeping the traceback (it would keep the host's locals alive)."""
    frames: list[tuple[str, int | None, str]] = []
    trace = error.__traceback__
    while trace is not None and len(frames) < _MAX_FRAMES:
        code = trace.tb_frame.f_code
        frames.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name, snapshot(error.args, _ERROR_LIMITS), frames


def _tokens(value: Any) -> Any:
    """A copy of a list of numbers that nobody else changes; None for what cannot be copied without waiting."""
    if type(value) is list:
        return value.copy()
    if value is ABSENT or value is None:
        return None
    if type(value) is tuple:
        return list(value)
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        return list(value) if isinstance(value, (list, tuple)) else None
    device = getattr(value, "device", None)
    if device is not None and str(device) != "cpu":
        return None
    return tolist()
