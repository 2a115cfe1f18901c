"""Delivery to one backend: a thread that calls the sink, and how long to wait after what went wrong.

The state is written by the shipper's own thread, and only after the sink returned: a kill in between means that the
same trajectories are sent once more, which replaces them.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from autotrace.ship.delivery.budgets import Ledger
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
REFUSED_DELAY = 15.0
"""Seconds between two tries when a person must act first."""
MAX_BATCH = 50
"""Trajectories in one call of a sink."""
MAX_TOKENS = 1_000_000
"""Token ids in one call of a sink, about: they are what takes memory (40 bytes each while they are Python integers)."""


@dataclass
class Parcel:
    """What one call of a sink gets."""

    trajectories: list[Trajectory]
    versions: dict[str, int]
    tokens: int = 0

    def add(self, trajectory: Trajectory, version: int) -> None:
        """Put one in."""
        self.trajectories.append(trajectory)
        self.versions[trajectory.trace_id] = version
        self.tokens += sum(len(span.prompt_ids or ()) + len(span.response_ids or ()) for span in trajectory.spans)

    @property
    def full(self) -> bool:
        """No more should be added."""
        return self.tokens > MAX_TOKENS


@dataclass
class Receipt:
    """What came of it."""

    delivered: list[tuple[str, int, str | None]] = field(default_factory=list)
    """Trace id, version, page."""
    rejected: list[tuple[str, int, str]] = field(default_factory=list)
    sent: int = 0
    """Bytes that the backend took."""
    problem: Exception | None = None


class Courier:
    """Delivers to one sink, one parcel at a time."""

    def __init__(self, sink: Sink, ledger: Ledger) -> None:
        self.sink = sink
        self.ledger = ledger
        self.state = "ok"
        """ok | waiting | blocked"""
        self.error: str | None = None
        self.failures = 0
        """In a row."""
        self.batch = MAX_BATCH
        self._not_before = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"deliver-{sink.name}")
        self._binds: list[tuple[str, Mapping[str, Any]]] = []
        self._running: Future[Receipt] | None = None

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something to the sink before the next delivery."""
        self._binds.append((name, value))
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """A parcel is on its way."""
        return self._running is not None

    def ready(self) -> bool:
        """A parcel may be sent now."""
        return self._running is None and time.monotonic() >= self._not_before

    def send(self, parcel: Parcel) -> None:
        """Deliver ``parcel`` in the background; ``receipt`` tells what came of it."""
        binds, self._binds = self._binds, []
        self._running = self._thread.submit(self._deliver, parcel, binds)

    def _deliver(self, parcel: Parcel, binds: Sequence[tuple[str, Mapping[str, Any]]]) -> Receipt:
        receipt = Receipt()
        reasons: Mapping[str, str] = {}
        before = self.sink.sent
        try:
            for name, value in binds:
                self.sink.bind(name, value)
            self.sink.deliver(parcel.trajectories)
        except Rejected as error:
            reasons = error.reasons
        except Exception as error:
            receipt.problem = error
        receipt.sent = self.sink.sent - before
        if receipt.problem is not None:
            return receipt
        for trajectory in parcel.trajectories:
            trace_id, version = trajectory.trace_id, parcel.versions[trajectory.trace_id]
            if trace_id in reasons:
                receipt.rejected.append((trace_id, version, reasons[trace_id]))
            else:
                receipt.delivered.append((trace_id, version, self._page(trajectory)))
        return receipt

    def _page(self, trajectory: Trajectory) -> str | None:
        try:
            return self.sink.page(trajectory)
        except Exception:
            return None

    def receipt(self) -> Receipt | None:
        """What came of the last parcel, once; None while it is on its way."""
        if self._running is None or not self._running.done():
            return None
        receipt, self._running = self._running.result(), None
        if receipt.problem is None:
            self.state, self.error, self.failures, self._not_before = "ok", None, 0, 0.0
            self.batch = min(MAX_BATCH, self.batch * 2)
        else:
            self._failed(receipt.problem)
        return receipt

    def _failed(self, problem: Exception) -> None:
        self.failures += 1
        self.batch = max(1, self.batch // 2)
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self.failures - 1, 10)) * random.uniform(0.8, 1.2)
        if isinstance(problem, Unavailable):
            self.state, self.error = "waiting", str(problem)
            if problem.retry_after is not None:
                delay = min(problem.retry_after, 600.0)
        elif isinstance(problem, Refused):
            self.state, self.error, delay = "blocked", str(problem), REFUSED_DELAY
        else:  # a bug here or in the backend's library: nothing is lost, it is tried again
            self.state, self.error = "waiting", f"{self.sink.name}: {type(problem).__name__}: {problem}"[:500]
            _log.error("delivery to %s failed", self.sink.name, exc_info=problem)
        if self.failures == 1 or self.failures % 20 == 0:
            _log.warning("%s (try %d)", self.error, self.failures)
        self._not_before = time.monotonic() + delay

    def hurry(self) -> None:
        """Try at once, whatever was to be waited for."""
        self._not_before = 0.0

    def close(self, wait: float) -> Receipt | None:
        """Wait at most ``wait`` seconds for the parcel on its way, then let go of the sink."""
        receipt = None
        if self._running is not None:
            try:
                self._running.result(timeout=wait)
                receipt = self.receipt()
            except Exception:
                receipt = None
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._running is None:
            self.sink.close()
        return receipt
