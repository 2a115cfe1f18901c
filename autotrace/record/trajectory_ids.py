"""Find trajectories by the host's id, for calls outside the trajectory's context (``id`` and ``of`` of a spec): in
another task, thread or handler of this process here, in another process by the shipper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.config.originals import time
from autotrace.record import context
from autotrace.record.backlog import backlog
from autotrace.record.context import OpenCall, Trace
from autotrace.record.fields import ABSENT, first, peek
from autotrace.record.probe import Probe
from autotrace.spool.records import REQUEST, Fact

MAX_KNOWN = 16_384
"""Limits the trajectories remembered by id. Beyond the limit the oldest trajectory is dropped, and the shipper joins
the remaining calls."""

_named: dict[bytes, None] = {}
"""Holds traces with a known id."""
_known: dict[str, OpenCall] = {}
"""Map an id to a stand-in for the trajectory's root, or for a root that is not recorded."""


def text_of(value: Any) -> str | None:
    """Return an id as text; None for a value that is not an id."""
    if type(value) is int:
        return str(value) if value.bit_length() <= 256 else None
    return value if type(value) is str and value else None


def name(probe: Probe, call: OpenCall, values: Mapping[str, Any]) -> None:
    """Read the id of ``call``'s trajectory from ``probe.paths.id`` and note the id."""
    read = peek if probe.paths.has_late_id and "result" not in values else first
    id = text_of(read(probe.paths.id, values))
    if id is None:
        return
    trace = call.trace
    span = trace.root or call.id
    known = _known.get(id)
    if known is not None and known.trace.id == trace.id:
        return
    _named[trace.id] = None
    _remember(id, OpenCall(span, trace, 0, None, None, 0, recorded=call.recorded))
    if call.recorded:
        backlog.put(Fact(trace.id, {"request": id, "span": span}, REQUEST, None, time.monotonic_ns()))


def not_recorded(probe: Probe, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the id of a trajectory that is not recorded: calls that belong to the trajectory are not recorded,
    either."""
    id = text_of(peek(probe.paths.id, probe.signature(function).bind(args, kwargs)))
    if id is not None:
        _remember(id, context.stand_in(b"", 0, recorded=False))


def above(probe: Probe, arguments: Mapping[str, Any], around: OpenCall | None) -> tuple[OpenCall | None, str | None]:
    """Return (the parent of a call whose target says which trajectory the call is ``of``, the id where the call was
    made outside the trajectory). A parent of None: the trajectory is not known here, and the call begins a trace that
    the shipper joins to the trajectory."""
    value = peek(probe.paths.of, arguments)
    if value is ABSENT and (around is None or (around.recorded and around.probe is not probe)):
        probe.paths.of[0].missed += 1  # only recorded calls: the others are not counted
    id = text_of(value)
    if id is None:
        return around, None
    known = _known.get(id)
    if known is not None:
        if around is not None and around.trace.id == known.trace.id:
            return around, None
        if known.trace.is_over:  # the call names the trajectory itself, and so do the calls inside
            trace = Trace(known.trace.id, known.trace.elsewhere, known.trace.root)
            known = OpenCall(known.id, trace, 0, None, None, 0, recorded=known.recorded)
        return known, id
    if around is not None and around.recorded and around.trace.id not in _named:
        return around, None
    return None, id


def facts(probe: Probe, facts: Any, values: Mapping[str, Any], at: int) -> None:
    """Record ``facts`` of ``probe`` about the trajectory that ``probe`` names, by the trajectory's id or attributes."""
    key = probe.capture.read(probe.paths.of_key, values)
    if key is None and (id := text_of(first(probe.paths.of, values))) is not None:
        key = {"of": id}
    if key is None or (probe.paths.of_key and len(key) < len(probe.paths.of_key)):
        return
    for name, value in (probe.capture.read(facts, values) or {}).items():
        backlog.put(Fact(b"", key, name, value, at))


def _remember(id: str, call: OpenCall) -> None:
    _known[id] = call
    tables: tuple[dict[Any, Any], ...] = (_known, _named)
    for table in tables:
        while len(table) > MAX_KNOWN:
            try:
                table.pop(next(iter(table)))
            except (KeyError, RuntimeError, StopIteration):  # another thread was quicker
                break


def forget() -> None:
    """Discard all trajectories. The trajectories belong to others: to the parent of this forked child, whose calls the
    shipper joins, or to a run that is over."""
    _known.clear()
    _named.clear()
