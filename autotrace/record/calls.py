"""Record calls for the wrappers: ``begin`` runs before the call, ``end`` or ``fail`` after the call, ``item`` for each
yielded value.

A wrapper finds this module by name (``sys.modules``) at each call and holds nothing else of autotrace. So a process
without autotrace can load a pickled wrapper. No function of this module raises a fault, blocks, or takes a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotrace.config.originals import time
from autotrace.record import closing, context, drivers, groups, ids, orphans, rows, sampling, trajectory_ids
from autotrace.record.backlog import backlog
from autotrace.record.closing import aborted, close, ended, exhausted, item, leave, type_of
from autotrace.record.context import CLOSED, ROOM, Ended, OpenCall, RetainingCall, Trace, current, standing
from autotrace.record.context_managers import entered, resumed
from autotrace.record.drivers import LATER
from autotrace.record.errors import NotRecorded, without_frame
from autotrace.record.fields import ABSENT, first
from autotrace.record.follower import follow, held
from autotrace.record.garbage import refuses
from autotrace.record.groups import is_part, recording
from autotrace.record.iterators import IteratorStep, dropped
from autotrace.record.object_fields import layouts, stored_name
from autotrace.record.origin import unread
from autotrace.record.probe import Probe
from autotrace.record.snapshot import SHORT
from autotrace.record.stack import make_room
from autotrace.record.swallowed import raised, returned
from autotrace.record.token_copy import copy_tokens
from autotrace.record.weights import LARGE, NUMBER_BYTES, weigh_numbers, without_large
from autotrace.spool.records import OF

__all__ = [
    "aborted", "begin", "close", "current", "dropped", "end", "ended", "entered", "exhausted", "fail", "item",
    "raised", "recording", "resumed", "returned", "type_of", "unread", "without_frame",
]  # fmt: skip

probes: dict[str, Probe] = {}
"""Map keys to the targets of this process; filled when the plan is loaded."""
decide: sampling.Decision | None = None
"""Decide whether a trajectory is recorded; None: every trajectory is recorded."""
compiling: Callable[[], bool] | None = None
"""Holds ``torch.compiler.is_compiling`` once torch is imported: inside a compiled region nothing may be recorded."""

_monotonic_ns = time.monotonic_ns
_append = backlog.append


def begin(function: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenCall | None:
    """Open a call and make the call current. None: call ``function`` as if nothing were here.

    ``above`` becomes the parent: the current call, the call that ``of`` names, or None where a trajectory begins.
    ``previous`` becomes current again at the end. ``over`` is a current call whose trajectory has ended.
    """
    if compiling is not None and compiling():
        return None
    probe = probes.get(key)
    if probe is None:
        return drivers.resume(key, args) if key in drivers.KEYS else None
    if probe.is_off:
        return None
    previous = above = current.get()
    over = of = None
    if above is None:
        if context.of_the_parent is not None:
            previous = above = context.of_the_parent()
    elif above.trace.is_over:
        over = above
        previous = above = standing(above)
    # an ``is_simple`` target with small constants, which most tools take: 0.3 us less than ``_open``
    if above is not None and above.recorded and above.room and not (kwargs or backlog.watchful):
        signature = probe.plain.get(function)
        if signature is not None and probe.follower is None and not (probe.has_subclasses and above.probe is probe):
            copies = args[signature.start :]
            for value in copies:
                kind = type(value)
                if kind is str:
                    if len(value) > SHORT:
                        break
                elif kind is not int and kind is not float and kind is not bool and value is not None:
                    break
            else:
                call: OpenCall | None = None
                probe.counts.calls += 1
                try:
                    name = stored_name(args[0]) if signature.reads_name and args else None
                    call = OpenCall(
                        ids.next_span_id(), above.trace, above.id, probe, signature, context.epoch, _monotonic_ns(),
                        id(args[0]) if probe.has_subclasses and args else 0, above, above.room - 1, copies, None,
                        None if name is None else {"object_name": name},
                    )  # fmt: skip
                    _append(call)
                    current.set(call)
                    return call
                except BaseException as error:
                    _given_up(probe, call, error)
                    return None
    if above is None or not above.recorded or probe.needs_parent_check:
        if decide is sampling.never and probe.is_root and above is None and not (probe.follower or probe.paths.of):
            probe.counts.calls += 1
            return _begin_unrecorded(probe, function, args, kwargs, None)
        if probe.paths.of:
            try:
                above, of = trajectory_ids.above(probe, probe.signature(function).bind(args, kwargs), above)
            except Exception as error:
                probe.trouble("of", error)
        if above is not None and not above.recorded and (above.probe is not None or above.epoch == CLOSED):
            above = standing(above)  # its trajectory has ended; a trajectory that is not sampled has neither
        if _is_left_out(probe, function, args, kwargs, above):
            return None
    return _open(probe, function, args, kwargs, above, previous, over, of)


def _is_left_out(
    probe: Probe, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], above: OpenCall | None
) -> bool:
    """Tell whether a call below ``above`` has no record of its own; count the call."""
    if above is not None:
        if not above.recorded:
            if probe.paths.id:
                probe.tried("id", trajectory_ids.not_recorded, probe, function, args, kwargs)
            return True
        if (
            probe.has_subclasses
            and (probe.is_root or above.probe is probe)  # most calls are neither
            and is_part(above, probe, function, args)
        ):
            return True
    elif probe.is_inner and not (probe.is_model and probe.tried("outside", orphans.rooted, probes)):
        probe.counts.calls += 1
        if probe.is_model:
            probe.tried("outside", orphans.met, probe, args, kwargs)
        return True
    if probe.is_counted:
        probe.counts.calls += 1
        if probe.counts.calls == 1:
            backlog.wake()
        if probe.follower is not None:
            probe.tried("follow", probe.follower.admits, args, kwargs)
    return probe.is_counted


def _open(
    probe: Probe, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], above: OpenCall | None,
    previous: OpenCall | None, over: OpenCall | None, of: str | None,
) -> OpenCall | None:  # fmt: skip
    """Open a call below ``above`` (see ``begin``). ``of``: the id of the trajectory that the call names."""
    call: OpenCall | None = None
    probe.counts.calls += 1
    try:
        paths, capture, follower = probe.paths, probe.capture, probe.follower
        arguments = attributes = prompt = None
        if follower is not None and not follower.admits(args, kwargs):
            return None
        signature = probe.signatures.get(function) or probe.signature(function)
        if signature.unwatched and probe.watch is not None:
            signature.unwatched = False
            probe.tried("watch", probe.watch, function, args)
        if probe.needs_arguments or follower is not None:
            arguments = signature.bind(args, kwargs)
            if follower is not None:
                follower.shows(arguments)
            if paths.attributes:
                attributes = capture.read(paths.attributes, arguments)
        if signature.reads_name and args and (name := stored_name(args[0])) is not None:
            attributes = {**(attributes or {}), "object_name": name}
        span = ids.next_span_id()
        if above is not None and not probe.is_root:
            parent, trace = above.id, above.trace
        else:
            parent, trace = 0, Trace(ids.new_trace_id(), False, span, previous)
            if refuses():
                return None
            attributes = _of_the_trajectory(probe, kwargs, attributes, above, over)
            is_sampled = not (probe.is_root or probe.is_inner) or sampling.admits(decide, attributes or {})
            if backlog.full() or not is_sampled:
                return _begin_unrecorded(probe, function, args, kwargs, previous)
        if of is not None:
            attributes = {**(attributes or {}), OF: of}
        if backlog.watchful and not backlog.accepts():
            return None
        if paths.prompt and arguments is not None:
            prompt = first(paths.prompt, arguments)
            prompt = None if prompt is ABSENT else copy_tokens(prompt)
        copies, keywords = capture.arguments(signature, args, kwargs)
        room = (ROOM if previous is None else previous.room) - 1
        frames = make_room(previous) if room < 0 else 0
        retains = probe.needs_arguments_later or probe.is_grouping or frames or follower is not None
        call = (RetainingCall if retains else OpenCall)(
            span, trace, parent, probe, signature, context.epoch, _monotonic_ns(),
            id(args[0]) if probe.has_subclasses and args else 0, previous, room % ROOM, copies, keywords, attributes,
            prompt,
        )  # fmt: skip
        if arguments is not None and capture.members:
            call.keywords = {**(keywords or {}), **capture.picked(arguments)}
        if type(call) is RetainingCall:
            call.frames = frames
            _retain(call, probe, arguments or {})
        weight = capture.limits.weight
        if weight:
            capture.limits.weight = 0  # as ``take_weight`` does
            if weight > LARGE and backlog.watchful and backlog.crowded():
                _drop_large(call)
                weight = 0
        if prompt is not None:
            weight += NUMBER_BYTES * len(prompt) if type(prompt) is tuple else weigh_numbers(prompt)
        if weight:
            call.weight = weight
            backlog.charged += weight
            if backlog.charged > backlog.enough:
                backlog.watchful = True
        _append(call)
        if arguments is not None and (paths.id or retains):
            _begin_inside(call, probe, arguments)
        current.set(call)
        return call
    except BaseException as error:
        _given_up(probe, call, error)
        return None


def _of_the_trajectory(
    probe: Probe, kwargs: dict[str, Any], attributes: dict[str, Any] | None, above: OpenCall | None, over: Any
) -> dict[str, Any] | None:
    """Complete the attributes of a call that begins a trajectory."""
    if probe.is_root and (above is not None or over is not None):
        attributes = groups.completed(groups.completed(attributes, over), above)
    if probe.is_inner and decide is not None:
        attributes = {**(attributes or {}), "prompt_digest": orphans.asked(kwargs)}
    return attributes


def _drop_large(call: OpenCall) -> None:
    """Leave large copies out of ``call``."""
    call.args = without_large(call.args or ())
    if call.keywords:
        call.keywords = dict(zip(call.keywords, without_large([*call.keywords.values()]), strict=True))


def _given_up(probe: Probe, call: OpenCall | None, error: BaseException) -> None:
    """Close a call that failed to open."""
    if call is not None:  # the encoder passes over the end of a call that was never queued
        fail(call, NotRecorded("autotrace failed when the call began; the call itself went on"))
    if not isinstance(error, Exception):
        raise error
    probe.trouble("begin", error)


def _begin_unrecorded(
    probe: Probe, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], previous: OpenCall | None
) -> OpenCall:
    """Open a trajectory that is not recorded."""
    if probe.paths.id:
        probe.tried("id", trajectory_ids.not_recorded, probe, function, args, kwargs)
    call = OpenCall(0, Trace(b"", around=previous), 0, None, None, 0, above=previous, recorded=False)
    current.set(call)
    return call


def _retain(call: RetainingCall, probe: Probe, arguments: dict[str, Any]) -> None:
    """Keep the host's objects that are needed when the call ends. An argument that no path reads then is not kept."""
    if probe.needs_arguments_later:
        has_rows = bool(probe.paths.rows)
        call.arguments = arguments if has_rows else {name: arguments[name] for name in probe.needs if name in arguments}
        if probe.paths.batch:
            refused = sampling.refuse(probe.paths.batch, arguments, probe.sampling)
            call.refused = sampling.refused.set(refused) if refused else None
    if probe.is_grouping:
        groups.begin(call, call.attributes, probe.is_group)


def _begin_inside(call: OpenCall, probe: Probe, arguments: dict[str, Any]) -> None:
    """Begin what belongs to an open call: the trajectory's id, the rows, and the followed request."""
    if probe.paths.id:
        trajectory_ids.name(probe, call, arguments)
    if type(call) is RetainingCall:
        if probe.row is not None:
            probe.row.decide = decide
            probe.tried("rows", rows.begin, call, arguments)
        if probe.follower is not None:
            follow(call, probe, probe.follower, arguments)


def end(call: OpenCall | IteratorStep, result: Any) -> Any:
    """Close ``call`` with ``result`` and return ``result``. A result that still has to run (a coroutine, generator or
    context manager that a plain function returned) is driven by a wrapper of the same kind, and ends the call."""
    if type(call) is OpenCall and current.get() is call:  # the common case of ``leave``
        current.set(call.above)
        call.above = None
        kind = type(result)
        if kind is str or kind is int or kind is bool or result is None:  # nothing that is still to come
            if not call.parent:
                call.trace.is_over = True
            probe = call.probe
            if probe is None:
                return result
            small = kind is not str or len(result) <= SHORT
            if small and probe.is_result_kept and call.epoch == context.epoch and closing.on_end is None:
                try:
                    event = Ended(call, _monotonic_ns(), result)
                    call.epoch = CLOSED  # as in ``close``: nothing is called before the event is queued
                    _append(event)
                    return result
                except Exception as error:
                    probe.trouble("end", error)
            close(call, result)
            return result
    else:
        if isinstance(call, IteratorStep):
            call.took(result)
            return result
        leave(call)
        if type(call) is RetainingCall and call.followed and held(call, result):
            return result
    if id(type(result)) in LATER:
        try:
            return drivers.drive(call, result)
        except Exception as error:
            if call.probe is not None:
                call.probe.trouble("later", error)
    elif call.probe is not None and call.probe.is_followed:
        layout = layouts.get(id(type(result)))
        if (layout is None or not layout.answers) and drivers.adopt(call, result):
            return result
    close(call, result)
    return result


def fail(call: OpenCall | IteratorStep, error: BaseException) -> None:
    """Record that ``call`` (or a step of the iterator that ``call`` returned) ended with ``error``; the caller raises
    ``error``."""
    if isinstance(call, IteratorStep):
        call.failed(error)
    else:
        closing.fail(call, error)
