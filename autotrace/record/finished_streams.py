"""Streams that have said everything and that nobody reads to their end.

Callers break out at the finish reason. The client's stream and its generator keep each other alive then, until the
garbage collector comes, which training programs switch off. So the flusher's thread ends such calls.
"""

from __future__ import annotations

from time import monotonic_ns

from autotrace.record import closing, context, faults
from autotrace.record.context import OpenCall

IDLE_NS = 1_500_000_000
"""Without a further item (servers send the usage after the finish reason). Less than the shipper waits for what a root
that has ended left open."""

_watched: list[tuple[OpenCall, int, int]] = []
"""A call, how many items it had when they were counted last, and when."""


def settle(*, idle_ns: int = IDLE_NS) -> None:
    """End the calls whose streams said that they were done, and yielded nothing more for ``idle_ns``."""
    while closing.said:
        call, at = closing.said.popleft()
        _watched.append((call, call.items, at))
    if not _watched:
        return
    now, waiting = monotonic_ns(), []
    for call, items, at in _watched:
        if call.epoch != context.epoch:  # it ended, or is a parent process's
            continue
        if call.items != items:
            items, at = call.items, now
        if now - at < idle_ns:
            waiting.append((call, items, at))
            continue
        try:
            closing.settled(call, at)
        except Exception as error:
            faults.failed("stream", error)
    _watched[:] = waiting
