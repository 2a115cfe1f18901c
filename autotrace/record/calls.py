"""What the wrappers call: ``begin`` before the call, ``end`` or ``fail`` after it, ``item`` for what a generator yields.

A wrapper finds this module by name (``sys.modules``) at each call and holds nothing else of autotrace, so it can be
pickled by value into a process that has no autotrace. Nothing here raises, blocks, or takes a lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from autotrace.record import flusher, ids, later, sampling
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

ABORTED = frozenset({"abort", "aborted"})
"""Values of the attribute ``finish_reason`` that mean: somebody else ended the request (the engines say ``abort``)."""

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
    """``begin`` for generators: the span is current while the generator runs (``item`` and ``enter``), never across a
    ``yield``, where a context variable would leak into the caller."""
    if compiling is not None and compiling():
        return None
    span = _open(function, key, args, kwargs)
    if span is None or not span.recorded:
        return None
    span.token = current.set(span)
    return span


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
        if probe.calls == 1:
            flusher.wake()
        return None
    follower = probe.follower
    try:
        if follower is not None and not follower.admits(args, kwargs):
            return None
        binder = probe.binders.get(id(getattr(function, "__code__", function)))
        if binder is None:
            binder = probe.binder(function)
        attributes = prompt = known = None
        if probe.knows or follower is not None:
            known = binder.bind(args, kwargs)
            if binder.method and args:
                known["self"] = args[0]
            if probe.attributes:
                attributes = probe.read(probe.attributes, known)
            if probe.prompt:
                prompt = _tokens(first(probe.prompt, known))
        if parent is None or probe.root:
            if flusher.full() or (probe.root and not sampling.admits(decide, attributes or {})):
                return stand_in(b"", 0, recorded=False)
            span = Span(ids.next_span_id(), Trace(ids.new_trace_id()), 0, probe, function, epoch)
        else:
            span = Span(ids.next_span_id(), parent.trace, parent.id, probe, function, epoch)
        if binder.method and args:
            span.owner = id(args[0])
        if probe.keeps:
            span.known = known
        if probe.batch and known is not None:
            groups = sampling.choose(probe.batch, known, probe.sampling)
            if groups is not None:
                span.chosen = sampling.chosen.set(groups)
        inputs = probe.inputs(binder, args, kwargs)
        if probe.members and known is not None:
            inputs.update(probe.picked(known))
        span.opened_at = _monotonic_ns()
        _put((flusher.OPEN, span, inputs, attributes, prompt, span.opened_at))
        if follower is not None and known is not None:
            follower.opened(span, known)
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
    probe = span.probe
    if probe is not None and probe.follower is not None and _held(probe, span, result):
        return result
    if type(result) in later.KINDS:
        return later.drive(span, result)
    close(span, result)
    return result


def _held(probe: Probe, span: Span, result: Any) -> bool:
    try:
        return probe.follower is not None and probe.follower.holds(span, result)
    except Exception as error:
        probe.trouble("hold", error)
        return False


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
        status = "OK"
        if attributes is not None and attributes.get("finish_reason") in ABORTED:
            status, attributes["outcome"] = "CANCELLED", "aborted"
        _put((flusher.CLOSE, span, status, probe.output(result), attributes, None, response, logprobs, mask, at, skip))
    except Exception as error:
        probe.trouble("end", error)
        _put((flusher.CLOSE, span, "OK", None, None, None, None, None, None, at, 0))
    span.known = None


def aborted(span: Span) -> None:
    """Record that somebody else ended the request before it gave a result."""
    _cancel(span, "aborted")


def _cancel(span: Span, outcome: str) -> None:
    if span.probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    left = {"outcome": outcome}
    _put((flusher.CLOSE, span, "CANCELLED", None, left, None, None, None, None, _monotonic_ns(), 0))


def fail(span: Span, error: BaseException) -> None:
    """Record that the call ended with ``error``; the caller raises it."""
    _leave(span)
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    at = _monotonic_ns()
    try:
        status = _status(error)
        left = {"outcome": "cancelled"} if status == "CANCELLED" else None
        _put((flusher.CLOSE, span, status, None, left, _described(error), None, None, None, at, 0))
        if probe.facts:
            known = dict(span.known or {})
            for name, value in (probe.read(probe.facts, known) or {}).items():
                _put((flusher.FACT, span.trace.id, None, name, value, at))
    except Exception as again:
        probe.trouble("fail", again)
    span.known = None


def item(span: Span, value: Any) -> tuple[Span | None, Callable[[Any], Any] | None]:
    """A generator yielded ``value``, which ``span`` is no longer current for.

    Returns what to go on with: the span, None when that was the final item (``final`` of the target); and, for targets
    that have one, what tells of each further item whether it is the final one: then ``item`` and ``enter`` need not be
    called again.
    """
    _leave(span)
    probe = span.probe
    if span.items == 0:
        span.first_item_at = _monotonic_ns()
    span.items += 1
    if probe is None or not probe.final:
        return span, None
    final = probe.is_final or probe.final_reader(value)
    try:
        if final(value):
            finish(span, value)
            return None, final
    except Exception as error:
        probe.trouble("item", error)
    return span, final


def finish(span: Span, value: Any) -> None:
    """``value`` was the final item: the call is over, whatever its caller does with the generator."""
    close(span, value)


def exhausted(span: Span, result: Any) -> None:
    """A generator came to its end."""
    _leave(span)
    close(span, result)


def enter(span: Span) -> None:
    """The generator goes on after a ``yield``: make its span current again."""
    span.token = current.set(span)


def _leave(span: Span) -> None:
    token, span.token = span.token, None
    try:
        if token is not None:
            current.reset(token)
        if span.chosen is not None:
            sampling.chosen.reset(span.chosen)
    except ValueError:  # the host drives this coroutine in several contexts; ours is not the current one
        pass


def ended(span: Span, error: BaseException) -> None:
    """A generator was left by ``error``: closing it early is the caller's right, not an error."""
    _leave(span)
    if isinstance(error, GeneratorExit):
        _cancel(span, "dropped")
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
