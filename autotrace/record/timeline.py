"""Track a request through an engine's front end: when tokens came, and where the request waited before.

An adapter hands over ``EngineOutputs`` at each step of the engine. The flusher's thread fills the ``Timeline`` of each
request and turns the ``Timeline`` into attributes of the request's span. Names and meaning of the attributes:
``docs/engines.md``. Times of the engine are seconds of a monotonic clock of its own; only differences are used.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import msgspec


class EngineOutputs(msgspec.Struct, eq=False, gc=False):
    """Records that outputs of several requests left the engine. ``read(*seen)`` updates the requests' timelines in the
    flusher's thread: the engine's event loop has a request and a chunk to serve every few microseconds."""

    read: Callable[..., None]
    seen: tuple[Any, ...]
    weight: int = 0
    """Counts the bytes that the event holds while waiting in the backlog."""


class Timeline:
    """Holds the times of a request. Everything is optional: engines differ in their reports."""

    def __init__(self) -> None:
        self.arrivals = array("d")
        """Lists when each output with new tokens left the engine (seconds)."""
        self.first_ns = 0
        """Holds the time when the first output arrived at the front end (``time.monotonic_ns``)."""
        self.coarse = False
        """Tells whether outputs came in lumps: then the times between outputs say nothing about single tokens."""
        self.queued = 0.0
        self.scheduled: list[float] = []
        """Lists when the scheduler took the request up: first, and again after each preemption."""
        self.preempted: list[float] = []
        self.prompt: Sequence[int] | None = None
        """Holds the token ids of the prompt, where only the engine has the ids."""
        self.response: Callable[[], Sequence[int] | None] | None = None
        """Returns the token ids generated so far, over all chunks."""
        self.attributes: dict[str, Any] = {}
        """Holds other reports of the engine."""
        self.settle: Callable[[Timeline], None] | None = None
        """Called before anything is read, in the flusher's thread: takes the reports that the engine gives only at the
        end."""

    def read(self, opened_ns: int, generated: int | None = None) -> dict[str, Any]:
        """Return the attributes. ``opened_ns``: when the span of the request opened (``time.monotonic_ns``);
        ``generated``: tokens of the response."""
        if self.settle is not None:
            self.settle(self)
        attributes: dict[str, Any] = {}
        if self.first_ns and opened_ns:
            attributes["ttft_s"] = _seconds((self.first_ns - opened_ns) / 1e9)
        if self.queued and self.first_ns and opened_ns:
            waited = self.queued - opened_ns / 1e9
            if 0 <= waited <= (self.first_ns - opened_ns) / 1e9:  # else the engine's clock is another machine's
                attributes["dispatch_s"] = _seconds(waited)
        if self.queued and self.scheduled:
            attributes["queue_s"] = _seconds(self.scheduled[0] - self.queued)
        if self.arrivals:
            first, last = self.arrivals[0], self.arrivals[-1]
            if self.scheduled:
                attributes["prefill_s"] = _seconds(first - self.scheduled[0])
            attributes["decode_s"] = _seconds(last - first)
            if not self.coarse:
                attributes["outputs"] = len(self.arrivals)
                attributes.update(_gaps(self.arrivals))
            elif generated is not None and generated > 1:
                attributes["itl_mean_ms"] = round(1e3 * max(0.0, last - first) / (generated - 1), 3)
        if self.preempted:
            attributes["preemptions"] = len(self.preempted)
            attributes["preempted_s"] = _seconds(self._preempted(self.arrivals[-1] if self.arrivals else 0.0))
        attributes.update(self.attributes)
        return attributes

    def _preempted(self, end: float) -> float:
        """Sum the seconds between each preemption and the next time the request was scheduled."""
        total = 0.0
        for at in self.preempted:
            again = min((scheduled for scheduled in self.scheduled if scheduled >= at), default=max(end, at))
            total += again - at
        return total


Timelines = WeakValueDictionary[str, Timeline]
"""Map the engine's request id to the timeline, for requests whose spans are open or about to be written."""


def _gaps(arrivals: Sequence[float]) -> dict[str, float]:
    """Compute mean, 99th percentile and largest of the times between two outputs (milliseconds)."""
    if len(arrivals) < 2:
        return {}
    gaps = sorted(after - before for before, after in pairwise(arrivals))
    rank = min(len(gaps) - 1, -(-99 * len(gaps) // 100) - 1)
    return {
        "itl_mean_ms": round(1e3 * sum(gaps) / len(gaps), 3),
        "itl_p99_ms": round(1e3 * gaps[rank], 3),
        "itl_max_ms": round(1e3 * gaps[-1], 3),
    }


def _seconds(value: float) -> float:
    return round(max(0.0, value), 6)
