"""What the wrappers call: ``begin`` before the call, ``end`` or ``fail`` after it, ``item`` for what a generator
yields.

A wrapper finds this module by name (``sys.modules``) at each call and holds nothing else of autotrace, so it can be
pickled by value into a process that has no autotrace. Nothing here raises, blocks, or takes a lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from autotrace.record import drivers, faults, ids, sampling
from autotrace.record.backlog import NUMBER_BYTES, backlog
from autotrace.record.context import Ended, OpenCall, RetainingCall, Trace, current, stand_in
from autotrace.record.fields import ABSENT, first
from autotrace.record.probe import NOT_COPIED, Probe
from autotrace.record.snapshot import ATOMS, Limits, snapshot
from autotrace.spool.records import Fact

probes: dict[str, Probe] = {}
"""Targets of this process by key, filled when the plan is loaded."""

decide: sampling.Decision | None = None
"""Whether a trajectory is recorded; None: every one is."""

compiling: Callable[[], bool] | None = None
"""``torch.compiler.is_compiling`` once torch is imported: inside a compiled region nothing may be recorded."""

epoch = 0
"""Counts forks; a span of another epoch belongs to the parent process."""

CLOSED = -1
"""Epoch of a span that is closed and that somebody else may close again (the adapter of an engine, which has been told
that the request was aborted): a second close does nothing."""

ABORTED = frozenset({"abort", "aborted"})
"""Values of the attribute ``finish_reason`` that mean: somebody else ended the request (the engines say ``abort``)."""

_ERROR_LIMITS = Limits(2, 16)
_monotonic_ns = time.monotonic_ns
_mro, _qualname = type.__dict__["__mro__"].__get__, type.__dict__["__qualname__"].__get__
"""Of a class; nothing is asked of its metaclass."""
_append = backlog.append


def begin(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenCall | None:
    """Open a span and make it current; None: call ``function`` as if nothing were here."""
    if compiling is not None and compiling():
        return None
    probe = probes.get(key)
    if probe is None or probe.off:
        return None
    above = current.get()
    if above is not None:
        if not above.recorded:
            return None
        if probe.subclasses and above.probe is probe and args and _is_super_call(above, probe, function, args[0]):
            return None
    probe.calls += 1
    if probe.counted:
        if probe.calls == 1:
            backlog.wake()
        if probe.follower is not None:
            _tell(probe, args, kwargs)
        return None
    follower = probe.follower
    try:
        if follower is not None and not follower.admits(args, kwargs):
            return None
        signature = probe.signatures.get(function) or probe.signature(function)
        attributes = prompt = known = None
        if probe.knows or follower is not None:
            known = signature.bind(args, kwargs)
            if probe.attributes:
                attributes = probe.read(probe.attributes, known)
            if probe.prompt:
                prompt = _tokens(first(probe.prompt, known))
        if above is None or probe.root:
            if backlog.full() or (probe.root and not sampling.admits(decide, attributes or {})):
                span = stand_in(b"", 0, recorded=False, above=above)
                current.set(span)
                return span
            parent, trace = 0, Trace(ids.new_trace_id())
        else:
            parent, trace = above.id, above.trace
        if backlog.watchful and not backlog.accepts():
            return None
        copies: Sequence[Any]
        keywords: dict[str, Any] | None = None
        try:
            if signature.whole:
                copies = args[signature.start :]
                for value in copies:
                    if type(value) not in ATOMS:
                        copies = signature.positional(args, probe.limits)
                        break
            else:
                copies = signature.positional(args, probe.limits)
            if kwargs and (probe.include is None or probe.include):
                keywords = signature.keywords(kwargs, probe.limits)
        except Exception as error:
            faults.failed(f"copy:{key}", error)
            copies, keywords = (), NOT_COPIED
        span = (RetainingCall if probe.keeps or follower is not None else OpenCall)(
            ids.next_span_id(),
            trace,
            parent,
            probe,
            signature,
            epoch,
            _monotonic_ns(),
            id(args[0]) if probe.subclasses and args else 0,
            above,
            copies,
            keywords,
            attributes,
            prompt,
        )
        if probe.members and known is not None:
            span.keywords = {**(span.keywords or {}), **probe.picked(known)}
        if probe.keeps:
            _keep(span, probe, known)
        if prompt is not None:
            span.weight = len(prompt) * NUMBER_BYTES
            backlog.charge(span.weight)
        _append(span)
        if follower is not None and known is not None and type(span) is RetainingCall:
            follower.opened(span, known)
        current.set(span)
        return span
    except Exception as error:
        probe.trouble("begin", error)
        return None


def _tell(probe: Probe, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Show the follower a call that is only counted."""
    try:
        if probe.follower is not None:
            probe.follower.admits(args, kwargs)
    except Exception as error:
        probe.trouble("follow", error)


def begin_stream(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenCall | None:
    """``begin`` for generators: the span is current while the generator runs (``item`` and ``enter``), never across a
    ``yield``, where a context variable would leak into the caller."""
    span = begin(function, key, args, kwargs)
    if span is not None and not span.recorded:
        _leave(span)
        return None
    return span


def _keep(span: Any, probe: Probe, known: Any) -> None:
    """What a span holds of the host's until the call ends."""
    span.known = known
    if probe.batch:
        groups = sampling.choose(probe.batch, known, probe.sampling)
        if groups is not None:
            span.chosen = sampling.chosen.set(groups)


def _is_super_call(above: OpenCall, probe: Probe, function: Any, owner: Any) -> bool:
    """Whether this is the base method that the override being recorded calls through ``super()``: another function for
    the same object, of the same name, and not of a class that comes before the override's."""
    signature = above.signature
    if above.owner != id(owner) or signature is None or signature.identity == id(function):
        return False
    if probe.several and signature.name.rpartition(".")[2] != function.__name__:
        return False
    order = [_qualname(cls) for cls in _mro(owner if isinstance(owner, type) else type(owner))]
    here, override = function.__qualname__.rpartition(".")[0], signature.name.rpartition(".")[0]
    return here not in order or override not in order or order.index(here) > order.index(override)


def recording(owner: Any, name: str, key: str) -> bool:
    """Whether the current span is of this call: method ``name`` of ``owner``, under another target than ``key``."""
    span = current.get()
    if span is None or span.probe is None or span.signature is None or span.probe.key == key:
        return False
    return span.owner == id(owner) and span.signature.name.rpartition(".")[2] == name


def end(span: OpenCall, result: Any) -> Any:
    """Close ``span`` with its result, which is returned. A result that is itself still to run (a coroutine or generator
    that a plain function returned) comes back driven by a wrapper of its own kind, and the span ends with it."""
    if current.get() is span and type(span) is OpenCall:  # the common case of ``_leave``
        current.set(span.above)
        span.above = None
    else:
        _leave(span)
    probe = span.probe
    if probe is not None and probe.follower is not None and _held(probe, span, result):
        return result
    if type(result) in drivers.KINDS:
        try:
            return drivers.drive(span, result)
        except Exception as error:
            if probe is not None:
                probe.trouble("later", error)
    close(span, result)
    return result


def _held(probe: Probe, span: OpenCall, result: Any) -> bool:
    try:
        return probe.follower is not None and probe.follower.holds(span, result)
    except Exception as error:
        probe.trouble("hold", error)
        return False


def close(span: OpenCall, result: Any) -> None:
    """Record that the call ended well."""
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    if type(span) is RetainingCall:
        span.epoch = CLOSED
    at = span.at
    try:
        at = _monotonic_ns()
        if probe.reads_result:
            _append(_with_result(span, probe, result, at))
        elif probe.result:
            _append(Ended(span, at, result if type(result) in ATOMS else probe.output(result)))
        else:
            _append(Ended(span, at))
    except Exception as error:
        probe.trouble("end", error)
        _append(Ended(span, at))


def _with_result(span: OpenCall, probe: Probe, result: Any, at: int) -> Ended:
    """What the target's paths find in the result, and in the arguments now that the call is over."""
    known = _release(span)
    known["result"] = result
    response = None
    skip = 0
    if probe.response:
        response = _tokens(first(probe.response, known))
        if probe.late_prompt and response is not None:
            head = _tokens(first(probe.late_prompt, known)) or ()
            response, skip = head + response, len(head)
    if probe.facts:
        _facts(span, probe, known, at)
    attributes = probe.read(probe.late, known) if probe.late else None
    status = "OK"
    if attributes is not None and attributes.get("finish_reason") in ABORTED:
        status, attributes["outcome"] = "CANCELLED", "aborted"
    logprobs = _tokens(first(probe.logprobs, known)) if probe.logprobs else None
    mask = _tokens(first(probe.mask, known)) if probe.mask else None
    output = probe.output(result)
    weight = NUMBER_BYTES * sum([len(numbers) for numbers in (response, logprobs, mask) if numbers is not None])
    backlog.charge(weight)
    return Ended(span, at, output, status, attributes, None, response, skip, logprobs, mask, weight)


def _release(span: OpenCall) -> dict[str, Any]:
    """The arguments the span kept, which it holds no longer."""
    if not isinstance(span, RetainingCall):
        return {}
    known, span.known = span.known, None
    return known or {}


def _facts(span: OpenCall, probe: Probe, known: dict[str, Any], at: int) -> None:
    for name, value in (probe.read(probe.facts, known) or {}).items():
        _append(Fact(span.trace.id, None, name, value, at))


def aborted(span: OpenCall) -> None:
    """Record that somebody else ended the request before it gave a result."""
    _cancel(span, "aborted")


def _cancel(span: OpenCall, outcome: str) -> None:
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    try:
        at = _monotonic_ns()
    except Exception as error:
        probe.trouble("cancel", error)
        at = span.at
    _append(Ended(span, at, None, "CANCELLED", {"outcome": outcome}))


def fail(span: OpenCall, error: BaseException) -> None:
    """Record that the call ended with ``error``; the caller raises it."""
    _leave(span)
    probe = span.probe
    if probe is None or span.epoch != epoch:
        return
    span.epoch = CLOSED
    event = Ended(span, span.at, None, "ERROR")
    try:
        event.at = at = _monotonic_ns()
        event.status = status = _status(error)
        event.error = _described(error)
        event.attributes = {"outcome": "cancelled"} if status == "CANCELLED" else None
        known = _release(span)
        if probe.facts:
            _facts(span, probe, known, at)
    except Exception as again:
        probe.trouble("fail", again)
    _append(event)


def item(span: OpenCall, value: Any) -> tuple[OpenCall | None, Callable[[Any], Any] | None]:
    """A generator yielded ``value``, which ``span`` is no longer current for.

    Returns what to go on with: the span, None when that was the final item (``final`` of the target); and, for targets
    that have one, what tells of each further item whether it is the final one: then ``item`` and ``enter`` need not be
    called again.
    """
    _leave(span)
    probe = span.probe
    span.items += 1
    if probe is None:
        return span, None
    final = None
    try:
        if span.items == 1:
            span.first_item_at = _monotonic_ns()
        if not probe.final:
            return span, None
        final = probe.is_final or probe.final_reader(value)
        if final(value):
            finish(span, value)
            return None, final
    except Exception as error:
        probe.trouble("item", error)
    return span, final


def finish(span: OpenCall, value: Any) -> None:
    """``value`` was the final item: the call is over, whatever its caller does with the generator."""
    close(span, value)


def exhausted(span: OpenCall, result: Any) -> None:
    """A generator came to its end."""
    _leave(span)
    close(span, result)


def enter(span: OpenCall) -> None:
    """The generator goes on after a ``yield``: make its span current again."""
    span.above = current.get()
    current.set(span)


def _leave(span: OpenCall) -> None:
    """Make current again what was before ``span``.

    Not by the token that ``set`` returns: it refers to the whole context, and through a span that nobody closed would
    keep it alive. Where ``span`` is not current, it is found above the current one (a span below was never left), or
    the host drives this coroutine in several contexts and there is nothing to restore in this one.
    """
    now = current.get()
    while now is not span and now is not None:
        now = now.above
    if now is span:
        current.set(span.above)
        span.above = None
        if type(span) is RetainingCall and span.chosen is not None:
            _unchoose(span)


def _unchoose(span: RetainingCall) -> None:
    token, span.chosen = span.chosen, None
    try:
        if token is not None:
            sampling.chosen.reset(token)
    except ValueError:  # chosen in another context, which is over
        pass


def ended(span: OpenCall, error: BaseException) -> None:
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
    return name, _message(error, kind), frames


def _message(error: BaseException, kind: type[BaseException]) -> Any:
    """The arguments; of an error that was made without any and speaks for itself (urllib's ``HTTPError``, pydantic's
    ``ValidationError``) what it says."""
    try:
        if error.args or kind.__str__ is BaseException.__str__:
            return snapshot(error.args, _ERROR_LIMITS)
        return [str(error)]
    except Exception as again:
        faults.failed("message", again)
        return []


def _tokens(value: Any) -> Any:
    """A copy of a list of numbers that nobody else changes; None for what cannot be copied without waiting, and while
    too much is waiting to be written."""
    if backlog.watchful and backlog.overloaded():
        return None
    if type(value) is list:
        return tuple(value)  # the garbage collector looks through a tuple of numbers once, through a list every time
    if value is ABSENT or value is None:
        return None
    if type(value) is tuple:
        return value
    try:
        tolist = getattr(value, "tolist", None)
        if tolist is None:
            return tuple(value) if issubclass(type(value), (list, tuple)) else None
        device = getattr(value, "device", None)
        if device is not None and str(device) != "cpu":
            return None
        return tuple(tolist())
    except Exception as error:
        faults.failed("tokens", error)
        return None
