"""The couriers of a run. Each delivers to one backend: how much to send at once, and how long to wait after what went
wrong. Together they are given what waits in the delivery queue, and what came of it is stored."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

from autotrace.ship.delivery.admission import Ledger
from autotrace.ship.delivery.carrier import Carrier, Problem, Receipt, Wanted
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.store.delivery_queue import TABLES, WHOLE, Share
from autotrace.ship.store.state import State

_log = logging.getLogger("autotrace.ship")

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
REFUSED_DELAY = 15.0
"""Seconds between two tries when a person must act first."""
FIRST_BATCH, MAX_BATCH = 50, 1_000
"""Trajectories that a parcel is made of, if so many fit into it. As many as the latest ones held and some more are
taken from the queue at once: what does not fit goes back to it."""
GATHERED_BATCH = 200
"""``FIRST_BATCH`` of a backend to which each delivery is a cost of its own."""


class Courier:
    """Delivers ``share`` of what backend ``name`` is to get, through ``carrier``."""

    def __init__(
        self, name: str, carrier: Carrier, ledger: Ledger, share: Share = WHOLE, gather: float = 0.0,
        after: str = "",
    ) -> None:  # fmt: skip
        """``gather``: as in ``Backend``. ``after``: as in ``DeliveryQueue.next``."""
        self.name = name
        self.ledger = ledger
        self.share = share
        self.after = after
        self.state = "ok"
        """ok | waiting | blocked"""
        self.error: str | None = None
        self.failures = 0
        """In a row."""
        self.batch = GATHERED_BATCH if gather else FIRST_BATCH
        self._carrier = carrier
        self._not_before = 0.0
        self._gather = gather
        self._gathers_since: float | None = None
        self._running: deque[tuple[Wanted, Future[Receipt]]] = deque()

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something to the sink before the next delivery."""
        self._carrier.bind(name, value)
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """A parcel is on its way."""
        return bool(self._running)

    @property
    def under_way(self) -> set[str]:
        """Ids of the traces that are on their way."""
        return {trace_id for wanted, _ in self._running for trace_id, _ in wanted}

    def ready(self) -> bool:
        """A parcel may be sent now."""
        return len(self._running) < self._carrier.capacity and time.monotonic() >= self._not_before

    @property
    def gathers(self) -> bool:
        """What waits may be too little for a parcel of its own."""
        return self._gather > 0.0

    def waits(self, count: int) -> bool:
        """``count`` trajectories are too few for a parcel and have not waited long; more are to come."""
        if not count or count >= self.batch * 3 // 4:
            self._gathers_since = None
            return False
        now = time.monotonic()
        self._gathers_since = self._gathers_since or now
        return now < self._gathers_since + self._gather

    def send(self, wanted: Wanted) -> None:
        """Deliver ``wanted`` in the background; ``receipt`` tells what came of it."""
        self._gathers_since = None
        self._running.append((wanted, self._carrier.send(wanted)))

    def receipt(self) -> Receipt | None:
        """What came of a parcel, once; None while all are on their way."""
        if not self._running or not self._running[0][1].done():
            return None
        wanted, future = self._running.popleft()
        receipt = future.result()
        settled = {entry[0] for entry in (*receipt.delivered, *receipt.rejected, *receipt.left_out)}
        receipt.remaining = [trace_id for trace_id, _ in wanted if trace_id not in settled]
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

    def _failed(self, problem: Problem, given: int) -> None:
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

    def close(self, seconds: float) -> list[Receipt]:
        """Wait at most ``seconds`` for what is on its way, then let go of the sink."""
        self._carrier.wait([future for _, future in self._running], seconds)
        receipts = []
        while (receipt := self.receipt()) is not None:
            receipts.append(receipt)
        self._carrier.close(idle=not self._running)
        return receipts


TRIES = 4
"""In the foreground: failed tries in a row after which a backend is given up."""
PAGE = 4_000
"""Traces looked up at once: to find the oldest, the whole queue is sorted."""


class Couriers:
    """Delivers what is in the outbox. ``make(name)`` makes the couriers of a backend: one, or one for each share."""

    def __init__(
        self, state: State, outbox: Outbox, make: Callable[[str], Sequence[Courier]], backends: Sequence[str]
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._queue = outbox.queue
        self._make = make
        self._couriers = self._made(backends)
        self._pages: dict[Courier, deque[str]] = {}
        """The next of each courier's share."""
        self._paused = False

    def _made(self, backends: Iterable[str]) -> list[Courier]:
        """One into the tables, which come first: some backends take what they need from there."""
        return [courier for name in (TABLES, *backends) for courier in self._make(name)]

    def __iter__(self) -> Iterator[Courier]:
        return iter(self._couriers)

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something about the run to all backends."""
        for courier in self._couriers:
            courier.bind(name, value)

    def replace(self, backends: Sequence[str]) -> None:
        """Deliver to ``backends`` from now on. Raises ``registry.BackendError`` when one of them cannot be used; then
        nothing has changed."""
        couriers = self._made(backends)
        self.close()
        self._couriers, self._pages = couriers, {}
        with self._state:
            self._outbox.deliver_to(backends)

    def pause(self) -> None:
        """Hand over nothing more until ``remake``."""
        self._paused = True

    def remake(self) -> None:
        """Make them all anew, for the same backends. Nothing may be on its way."""
        names = dict.fromkeys(courier.name for courier in self._couriers if courier.name != TABLES)
        self.close()
        self._couriers = self._made(names)
        self._pages, self._paused = {}, False

    def deliver(self, sending: bool, coming: bool = False) -> bool:
        """Store what came of earlier parcels and, if ``sending``, hand over new ones; True when something moved.
        ``coming``: there will be more to deliver."""
        moved = False
        for courier in self._couriers:
            while (receipt := courier.receipt()) is not None:
                self._store(courier, receipt)
                moved = moved or receipt.moved
            while sending and not self._paused and courier.ready() and self._send(courier, coming):
                moved = True
        return moved

    def _send(self, courier: Courier, coming: bool) -> bool:
        page = self._pages.setdefault(courier, deque())
        if not page or (courier.gathers and len(page) < courier.batch):
            page.clear()
            page.extend(
                id for id, _ in self._queue.next(courier.name, PAGE, courier.share, courier.under_way, courier.after)
            )
        if coming and courier.gathers and courier.waits(len(page)):
            return False
        wanted = self._queue.current(courier.name, islice(page, courier.batch))
        for _ in range(min(courier.batch, len(page))):
            page.popleft()
        if wanted:
            courier.send(wanted)
        return bool(wanted)

    def _store(self, courier: Courier, receipt: Receipt) -> None:
        if receipt.moved or receipt.sent:
            with self._state:
                self._queue.acknowledged(courier.name, receipt.delivered)
                self._queue.rejected(courier.name, [*receipt.rejected, *receipt.left_out])
                courier.ledger.sent(receipt.sent)
        if courier in self._pages:
            self._pages[courier].extendleft(reversed(receipt.remaining))
        for trace_id, _, reason in receipt.rejected:
            _log.warning("%s rejected trace %s: %s", courier.name, trace_id, reason)

    @property
    def busy(self) -> bool:
        """A parcel is on its way."""
        return any(courier.busy for courier in self._couriers)

    @property
    def blocked(self) -> bool:
        """Some backend cannot go on until the user acts."""
        return any(courier.state == "blocked" for courier in self._couriers)

    def unfinished(self) -> list[Courier]:
        """Those that still have something to deliver, except for those that wait for another one of them."""
        found = [c for c in self._couriers if c.busy or self._queue.next(c.name, 1, c.share)]
        names = {c.name for c in found}
        return [
            c for c in found
            if c.busy or c.after not in names or self._queue.next(c.name, 1, c.share, after=c.after)
        ]  # fmt: skip

    @staticmethod
    def gave_up(courier: Courier) -> bool:
        """In the foreground this one is not tried any more."""
        return not courier.busy and (courier.state == "blocked" or courier.failures >= TRIES)

    def close(self) -> None:
        """Store what is on its way and let go."""
        for courier in self._couriers:
            for receipt in courier.close(seconds=5.0):
                self._store(courier, receipt)
