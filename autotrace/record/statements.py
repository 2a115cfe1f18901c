"""Record statements of adapters about the run and its trajectories, besides the recorded calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.config.originals import time
from autotrace.record import context
from autotrace.record.backlog import backlog
from autotrace.spool.records import REQUEST, Bind, Fact, StepFacts, TokenFacts


def fact(name: str, value: Any, key: Mapping[str, Any] | None = None) -> None:
    """Record a fact about a trajectory: the current trajectory, or the trajectory that ``key`` (``uid``,
    ``session_id``, ...) names."""
    call = context.current_call()
    if key is None and (call is None or not call.recorded):
        return
    trace = b"" if key is not None or call is None else call.trace.id
    backlog.put(Fact(trace, dict(key) if key else None, name, value, time.monotonic_ns()))


def token_facts(value: Mapping[str, bytes], key: Mapping[str, Any]) -> None:
    """Record numbers that the trainer computed for the tokens of the response that ``key`` names, packed as
    ``spool.token_facts`` says."""
    backlog.put(TokenFacts(dict(key), dict(value), time.monotonic_ns()))


def step_facts(step: int, name: str, value: Mapping[str, float]) -> None:
    """Record numbers about a step of training (``spool.records.StepFacts``)."""
    backlog.put(StepFacts(step, name, dict(value), time.monotonic_ns()))


def requests(request_id: str) -> None:
    """Record that the current call makes a request whose id on the other side is ``request_id``: if the context is lost
    on the way, the shipper joins the two."""
    call = context.current_call()
    if call is not None and call.recorded:
        key = {"request": request_id, "span": call.id}
        backlog.put(Fact(call.trace.id, key, REQUEST, None, time.monotonic_ns()))


def bind(name: str, value: Mapping[str, Any]) -> None:
    """Record a fact about the run (see ``spool.records.Bind``)."""
    backlog.put(Bind(name, dict(value), time.monotonic_ns()))
