"""Deliver to one backend: decide how much to send at once, and how long to wait after a failure."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from autotrace.ship.delivery.carrier import Carrier, DeliveryProblem, ParcelReceipt, Wanted
from autotrace.ship.store.delivery_queue import DeliveryQueue

_log = logging.getLogger("autotrace.ship")

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
REFUSED_DELAY = 15.0
"""Wait so many seconds between two tries when a person must act first."""
FIRST_BATCH, MAX_BATCH = 50, 1_000
"""Set the trajectories of a parcel, if so many fit. The next parcel takes from the queue a quarter more than the latest
parcel held. Trajectories that do not fit return to the queue."""
GATHERED_BATCH = 200
"""Replace ``FIRST_BATCH`` for a backend with a fixed cost per delivery."""
TRIES = 4
"""Give up a backend in the foreground after so many failed tries in a row."""


class Courier:
    """Deliver the trajectories that are queued for backend ``name``, through ``carrier``."""

    def __init__(self, name: str, carrier: Carrier, *, gather: float = 0.0, after: str = "") -> None:
        """Set up the courier. ``gather``: as in ``Backend``. ``after``: as in ``DeliveryQueue.next``."""
        self.name = name
        self.after = after
        self.state = "ok"
        """Name the state: ok | waiting | blocked."""
        self.error: str | None = None
        self.failures = 0
        """Count the failures in a row."""
        self.batch = GATHERED_BATCH if gather else FIRST_BATCH
        self._carrier = carrier
        self._not_before = 0.0
        self._gather = gather
        self._gathers_since: float | None = None
        self._running: deque[tuple[Wanted, Future[ParcelReceipt]]] = deque()
        self._telling: Future[None] | None = None

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Pass a report to the sink before the next delivery."""
        self._carrier.bind(name, value)
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """Return whether a parcel is on the way."""
        return bool(self._running)

    @property
    def gave_up(self) -> bool:
        """Return whether the backend is given up (in the foreground)."""
        return not self.busy and (self.state == "blocked" or self.failures >= TRIES)

    def ready(self) -> bool:
        """Return whether a parcel may be sent now."""
        return len(self._running) < self._carrier.capacity and time.monotonic() >= self._not_before

    def next(self, queue: DeliveryQueue, coming: bool) -> Wanted:
        """Return the trajectories to send now. ``coming``: more will follow, so a few trajectories may wait."""
        under_way = {trace_id for wanted, _ in self._running for trace_id, _ in wanted}
        found = queue.next(self.name, self.batch, under_way, self.after)
        return () if coming and self._gather and self.waits(len(found)) else found

    def waits(self, count: int) -> bool:
        """Return whether ``count`` trajectories are too few for a parcel and have not waited long."""
        if not count or count >= self.batch * 3 // 4:
            self._gathers_since = None
            return False
        now = time.monotonic()
        self._gathers_since = self._gathers_since or now
        return now < self._gathers_since + self._gather

    def send(self, wanted: Wanted) -> None:
        """Deliver ``wanted`` in the background; ``receipt`` returns the outcome."""
        self._gathers_since = None
        self._running.append((wanted, self._carrier.send(wanted)))

    def tell(self, name: str, *arguments: Any) -> Future[None]:
        """Call a method of the sink in the background, one at a time."""
        self._telling = self._carrier.tell(name, *arguments)
        return self._telling

    def receipt(self) -> ParcelReceipt | None:
        """Return the outcome of a parcel, once; None while all parcels are on the way. A parcel without an outcome is
        tried again."""
        if not self._running or not self._running[0][1].done():
            return None
        wanted, future = self._running.popleft()
        receipt = future.result()
        if receipt.problem is not None:
            self._failed(receipt.problem, receipt.given)
        elif receipt.delivered or receipt.rejected:
            self.state, self.error, self.failures, self._not_before = "ok", None, 0, 0.0
            fit = receipt.given + len(receipt.left_out)
            if fit < len(wanted):
                self.batch = fit + fit // 4 + 1
            elif fit >= self.batch:
                self.batch = min(MAX_BATCH, self.batch * 2)
        return receipt

    def _failed(self, problem: DeliveryProblem, given: int) -> None:
        self.failures += 1
        self.batch = max(1, given // 2)
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self.failures - 1, 10)) * random.uniform(0.8, 1.2)
        self.state, self.error = problem.state, problem.text
        if problem.state == "blocked":
            delay = REFUSED_DELAY
        elif problem.retry_after is not None:
            delay = min(problem.retry_after, 600.0)
        if self.failures == 1 or self.failures % 20 == 0:
            _log.warning("%s (try %d)", self.error, self.failures)
        self._not_before = time.monotonic() + delay

    def close(self, seconds: float) -> list[ParcelReceipt]:
        """Wait at most ``seconds`` for everything on the way, then release the sink."""
        under_way: list[Future[Any]] = [future for _, future in self._running]
        if self._telling is not None:
            under_way.append(self._telling)
        left = wait(under_way, seconds).not_done
        receipts = list(iter(self.receipt, None))
        self._carrier.close(idle=not left)
        return receipts
