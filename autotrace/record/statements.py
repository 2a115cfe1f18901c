"""What adapters state about the run and its trajectories, beside the calls that are recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from autotrace.record import context
from autotrace.record.backlog import backlog
from autotrace.spool.records import REQUEST, Bind, Fact


def fact(name: str, value: Any, key: Mapping[str, Any] | None = None) -> None:
    """Say something about a trajectory: the current one, or the one that ``key`` (``uid``, ``session_id``, ...)
    names."""
    span = context.current.get()
    if key is None and (span is None or not span.recorded):
        return
    trace = b"" if key is not None or span is None else span.trace.id
    backlog.put(Fact(trace, dict(key) if key else None, name, value, time.monotonic_ns()))


def requests(request_id: str) -> None:
    """Say that the current call makes a request which its other side knows as ``request_id``: if the context is lost on
    the way, the collector joins the two."""
    span = context.current.get()
    if span is not None and span.recorded:
        key = {"request": request_id, "span": span.id}
        backlog.put(Fact(span.trace.id, key, REQUEST, None, time.monotonic_ns()))


def bind(name: str, value: Mapping[str, Any]) -> None:
    """Say something about the run that became known only now (see ``spool.records.Bind``)."""
    backlog.put(Bind(name, dict(value), time.monotonic_ns()))
