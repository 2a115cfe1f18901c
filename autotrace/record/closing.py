"""End an open call: record the end and make the previous call current again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from autotrace.config.originals import thread, time
from autotrace.record import collecting, context, errors, origin, sampling, swallowed, trajectory_ids, yielded
from autotrace.record.backlog import backlog
from autotrace.record.context import CLOSED, Ended, OpenCall, RetainingCall, current
from autotrace.record.event_bytes import answered
from autotrace.record.fields import ABSENT, first, peek
from autotrace.record.probe import Probe
from autotrace.record.snapshot import SHORT
from autotrace.record.spec_functions import total
from autotrace.record.token_copy import copy_tokens, joined
from autotrace.record.weights import LARGE, NOT_KEPT, NUMBER_BYTES, weigh, weigh_numbers
from autotrace.spool.records import ROW_TOKENS, Fact

ABORTED = frozenset({"abort", "aborted"})
"""Lists values of the attribute ``finish_reason`` by which engines say that somebody else ended the request."""

_monotonic_ns, _get_ident = time.monotonic_ns, thread.get_ident
_append = backlog.append
type_of = type
"""Give wrappers of generators the built-in ``type``: the host's module may have a ``type`` of its own."""

on_end: Callable[[], None] | None = None
"""Called after the end of a call was queued; set by ``flush_requests`` in processes that other processes end."""
said: deque[tuple[OpenCall, int]] = deque()
"""Queue calls whose stream is complete, each with the time of completion; see ``record.iterators``."""


def close(call: OpenCall, result: Any, ended_at: int = 0) -> None:
    """Record that the call ended well, now or at ``ended_at``."""
    if not call.parent:
        call.trace.is_over = True
    probe = call.probe
    if probe is None or call.epoch != context.epoch:
        return
    at = call.at
    try:
        at = ended_at or _monotonic_ns()
        if probe.is_model and type(result) is not str:
            result = answered(result)
        if probe.needs_result:
            event = _with_result(call, probe, result, at)
        elif (capture := probe.capture).has_result:
            kind = type(result)
            small = len(result) <= SHORT if kind is str else kind is int or kind is float or result is None
            event = Ended(call, at, result if small else capture.output(result))
        else:
            event = Ended(call, at)
        limits = probe.capture.limits
        captured = limits.weight
        if captured:
            limits.weight = 0  # as ``take_weight`` does
            if captured > LARGE and backlog.watchful:
                _weigh(event, captured)
            else:
                event.weight += captured
    except Exception as error:
        probe.trouble("end", error)
        event = Ended(call, at)
    weight = event.weight
    if weight:
        # Nothing is called from here on: an exception of the host's comes at a call, and would leave the call closed
        # and its end not queued.
        backlog.charged += weight
        if backlog.charged > backlog.enough:
            backlog.watchful = True
    call.epoch = CLOSED
    _append(event)
    if on_end is not None:
        on_end()


def _queue(call: OpenCall, event: Ended) -> None:
    backlog.charge(event.weight)
    call.epoch = CLOSED
    _append(event)
    if on_end is not None:
        on_end()


def _weigh(event: Ended, captured: int) -> None:
    """Add ``captured`` bytes of copies to the weight of ``event``. Large copies are left out while too much waits."""
    if captured > LARGE and backlog.watchful and backlog.crowded():
        event.output, captured = NOT_KEPT, 0
        if event.error is not None:
            event.error = (event.error[0], [], event.error[2])
    event.weight += captured


def _with_result(call: OpenCall, probe: Probe, result: Any, at: int) -> Ended:
    """Read the target's paths in the result, and in the arguments as the arguments are at the end of the call."""
    values = {"result": result} if type(call) is OpenCall else {**_release(call), "result": result}
    paths = probe.paths
    probe.counts.ended += 1
    if probe.row is not None and type(call) is RetainingCall and call.rows is not None:
        call.rows.end(call, values, at)
    if paths.has_late_id:
        trajectory_ids.name(probe, call, values)
    response, skip, weight = None, 0, 0
    if paths.response:
        found = first(paths.response, values)
        response = None if found is ABSENT else copy_tokens(found)
        if paths.late_prompt and response is not None and peek(paths.prompt, values) is ABSENT:
            head = copy_tokens(first(paths.late_prompt, values)) or ()
            response, skip = joined(head, response), len(head)
        if response is not None:
            weight = NUMBER_BYTES * len(response) if type(response) is tuple else weigh_numbers(response)
    if paths.facts:
        _facts(call, probe, paths.facts, values, at)
    attributes = probe.capture.read(paths.late, values) if paths.late else None
    status, error = "OK", None
    if attributes is not None and attributes.get("finish_reason") in ABORTED:
        status, attributes["outcome"] = "CANCELLED", "aborted"
    elif attributes is not None and attributes.get("is_error") is True:
        status, error = "ERROR", errors.reported(result) if probe.role == "tool" else None
    logprobs = mask = None
    if paths.logprobs:
        logprobs = copy_tokens(first(paths.logprobs, values))
        weight += weigh_numbers(logprobs or ())
    if paths.mask:
        mask = copy_tokens(first(paths.mask, values))
        weight += weigh_numbers(mask or ())
    if probe.is_returned and response is not None:
        count = total(mask) if paths.mask else len(response) - skip
        if count is not ABSENT:
            backlog.put(Fact(call.trace.id, {"output": values["i"]}, ROW_TOKENS, count, at))
    output = probe.capture.output(result, values)
    return Ended(call, at, output, status, attributes, error, response, skip, logprobs, mask, weight)


def _release(call: OpenCall) -> dict[str, Any]:
    """Return the arguments that the call kept; the call drops the arguments."""
    if not isinstance(call, RetainingCall):
        return {}
    arguments, call.arguments = call.arguments, None
    return arguments or {}


def _with_bound(call: OpenCall, probe: Probe, event: Ended) -> Ended:
    """Add the values of the target's paths to ``event``, the end of a ``with`` that was left early. The paths read the
    value that the ``with`` bound."""
    result = _put_together(call)
    known = _with_result(call, probe, answered(result) if probe.is_model else result, event.at)
    known.status, known.error = event.status, event.error
    known.attributes = {**(known.attributes or {}), **(event.attributes or {})} or None
    return known


def _facts(call: OpenCall, probe: Probe, facts: Any, values: dict[str, Any], at: int) -> None:
    if probe.paths.of_key:
        trajectory_ids.facts(probe, facts, values, at)
        return
    key = {"output": values["i"]} if probe.is_returned else None
    for name, value in (probe.capture.read(facts, values) or {}).items():
        backlog.put(Fact(call.trace.id, key, name, value, at))


def aborted(call: OpenCall) -> None:
    """Record that somebody else ended the request before a result came."""
    _cancel(call, "aborted")


def _cancel(call: OpenCall, outcome: str) -> None:
    if not call.parent:
        call.trace.is_over = True
    probe = call.probe
    if probe is None or call.epoch != context.epoch:
        return
    event = Ended(call, call.at, None, "CANCELLED", {"outcome": outcome})
    try:
        event.at = _monotonic_ns()
        if call.yielded is not None:
            if call.yielded.bound and probe.needs_result:
                event = _with_bound(call, probe, event)
            else:
                event.output = probe.capture.output(_put_together(call))
            _weigh(event, probe.capture.limits.take_weight())
    except Exception as error:
        probe.trouble("cancel", error)
    finally:
        _queue(call, event)


def fail(call: OpenCall, error: BaseException) -> None:
    """Record that the call ended with ``error``; the caller raises ``error``."""
    leave(call)
    if not call.parent:
        call.trace.is_over = True
    probe = call.probe
    if probe is None or call.epoch != context.epoch:
        return
    event = Ended(call, call.at, None, "ERROR")
    try:
        event.at = at = _monotonic_ns()
        outcome = errors.outcome_of(error)
        if outcome is not None:
            event.status, event.attributes = "OK", {"outcome": outcome}
        else:
            event.status = status = errors.status_of(error)
            event.error = errors.described(error)
            swallowed.passed_on(call, error)
            event.attributes = {"outcome": "cancelled"} if status == "CANCELLED" else None
        if type(call) is RetainingCall and call.rows is not None:
            call.rows.fail(error)
            call.rows = None
        if call.yielded is not None and call.yielded.bound and probe.needs_result:
            event = _with_bound(call, probe, event)
        else:
            arguments = _release(call)
            if probe.paths.stated:
                probe.counts.ended += bool(probe.paths.of_key)  # which is read then
                _facts(call, probe, probe.paths.stated, arguments, at)
            if call.yielded is not None:
                event.output = probe.capture.output(_put_together(call))
        _weigh(event, probe.capture.limits.take_weight() + weigh(event.error))
    except Exception as again:
        probe.trouble("fail", again)
    finally:
        _queue(call, event)


def item(
    call: OpenCall, value: Any
) -> tuple[OpenCall | None, Callable[[Any], Any] | Literal[False] | None, yielded.Keeper]:
    """Record that a generator yielded ``value``, and make ``call`` current no longer.

    Returns the call, or None after the final item (``final`` of the target); the function that recognises a final item,
    False where items are only counted, or None where each item has to come here; and the keeper of other items.
    """
    if current.get() is call and type(call) is OpenCall:  # the common case of ``leave``
        current.set(call.above)
        call.above = None
    else:
        leave(call)
    probe = call.probe
    if probe is None:
        return call, None, yielded.NO_KEEPER
    final = None
    try:
        if call.items == 0:
            call.first_item_at = _monotonic_ns()
            if probe.needs_items and call.yielded is None:
                call.yielded = collecting.begin(probe.role, value, probe.capture.yields, probe.items)
        collected = call.yielded
        call.items += 1
        if collected is not None:
            done = collected.done
            keeper = collected.add(value)
            if collected.done and not done:
                call.ender = {}
                said.append((call, _monotonic_ns()))
            return call, None, keeper
        if not probe.paths.final:
            return call, False, yielded.NO_KEEPER
        final = probe.final_test or probe.final_reader(value)
        if final(value):
            close(call, value)  # no matter how the caller goes on with the generator
            return None, final, yielded.NO_KEEPER
    except Exception as error:
        probe.trouble("item", error)
    return call, final, yielded.NO_KEEPER


def exhausted(call: OpenCall, result: Any) -> None:
    """Close the call of a finished generator. The result is the return value, or else the collected items."""
    leave(call)
    if not _ends_here(call):
        return
    if call.yielded is not None:
        collected = _put_together(call)
        result = collected if result is None else result
    close(call, result)


def ended(call: OpenCall, error: BaseException) -> None:
    """Close the call of a generator that ``error`` left. Closing a generator early is the caller's right, not an error.
    A generator whose stream was complete did not even end early."""
    leave(call)
    if not _ends_here(call):
        return
    if isinstance(error, GeneratorExit):
        if call.yielded is not None and call.yielded.done:
            close(call, _put_together(call))
        else:
            _cancel(call, "dropped")
    else:
        fail(call, error)


def settled(call: OpenCall, at: int) -> None:
    """Close a call whose stream was complete at ``at`` and that nobody reads any further."""
    if _ends_here(call):
        close(call, _put_together(call), at)


def _ends_here(call: OpenCall) -> bool:
    """Tells whether the calling thread ends ``call``. The flusher's thread ends finished streams too (``settled``). The
    first thread that asks may end the call, however often that thread asks."""
    return call.ender is None or call.ender.setdefault("thread", _get_ident()) == _get_ident()


def _put_together(call: OpenCall) -> Any:
    """Return the value collected from the yielded items; the call drops the items."""
    collected, call.yielded = call.yielded, None
    try:
        if collected is None:
            return None
        result = collected.value()
        call.items += collected.kept
        return result
    except Exception as error:
        if call.probe is not None:
            call.probe.trouble("stream", error)
        return None


def enter(call: OpenCall) -> None:
    """Make ``call`` current when a returned coroutine, generator or context manager begins to run."""
    above = current.get()
    if above is not call:
        call.above = above
        current.set(call)


def leave(call: OpenCall) -> None:
    """Make the call current again that was current before ``call``.

    A token of ``set`` would refer to the whole context, and a call that nobody closed would keep the context alive. If
    ``call`` is not current, either a call below was never left, or the host drives the coroutine in several contexts.
    """
    now = current.get()
    while now is not call and now is not None:
        now = now.above
    if now is call:
        current.set(call.above)
        call.above = None
        if type(call) is RetainingCall and call.refused is not None:
            token, call.refused = call.refused, None
            try:
                sampling.refused.reset(token)
            except (LookupError, ValueError) as error:  # chosen in another context, which is over
                if origin.is_hosts(error):
                    raise
