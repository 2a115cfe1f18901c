"""The couriers of a run: gives them what waits in the delivery queue, stores what came of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from autotrace.ship.delivery.carrier import Receipt
from autotrace.ship.delivery.courier import Courier
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import State

_log = logging.getLogger("autotrace.ship")

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
