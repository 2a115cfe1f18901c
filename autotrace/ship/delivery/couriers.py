"""The couriers of a run, one for each backend: gives them parcels, stores what came of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autotrace.ship.delivery.courier import Courier, Receipt
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.store.state import State

_log = logging.getLogger("autotrace.ship")

TRIES = 4
"""In the foreground: failed tries in a row after which a backend is given up."""


class Couriers:
    """Delivers what is in the outbox. ``make(name)`` makes the courier of a backend."""

    def __init__(
        self, state: State, outbox: Outbox, packer: Packer, make: Callable[[str], Courier], backends: Sequence[str]
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._queue = outbox.queue
        self._packer = packer
        self._make = make
        self._couriers = [make(name) for name in backends]

    def __iter__(self) -> Iterator[Courier]:
        return iter(self._couriers)

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something about the run to all backends."""
        for courier in self._couriers:
            courier.bind(name, value)

    def replace(self, backends: Sequence[str]) -> None:
        """Deliver to ``backends`` from now on. Raises ``registry.BackendError`` when one of them cannot be used; then
        nothing has changed."""
        couriers = [self._make(name) for name in backends]
        for courier in self._couriers:
            courier.close(wait=5.0)
        self._couriers = couriers
        with self._state:
            self._outbox.deliver_to(backends)

    def deliver(self, sending: bool) -> bool:
        """Store what came of earlier parcels and, if ``sending``, hand over new ones; True when something moved."""
        moved = False
        for courier in self._couriers:
            receipt = courier.receipt()
            if receipt is not None:
                self._store(courier, receipt)
                moved = moved or receipt.problem is None
            if sending and courier.ready():
                moved = self._send(courier) or moved
        return moved

    def _send(self, courier: Courier) -> bool:
        parcel, left_out = self._packer.parcel(courier)
        if left_out:
            with self._state:
                self._queue.rejected(courier.sink.name, left_out)
        if parcel is not None:
            courier.send(parcel)
        return parcel is not None

    def _store(self, courier: Courier, receipt: Receipt) -> None:
        with self._state:
            self._queue.acknowledged(courier.sink.name, receipt.delivered)
            self._queue.rejected(courier.sink.name, receipt.rejected)
            courier.ledger.sent(receipt.sent)
        for trace_id, _, reason in receipt.rejected:
            _log.warning("%s rejected trace %s: %s", courier.sink.name, trace_id, reason)

    @property
    def busy(self) -> bool:
        """A parcel is on its way."""
        return any(courier.busy for courier in self._couriers)

    @property
    def blocked(self) -> bool:
        """Some backend cannot go on until the user acts."""
        return any(courier.state == "blocked" for courier in self._couriers)

    def unfinished(self) -> list[Courier]:
        """Those that still have something to deliver."""
        return [courier for courier in self._couriers if courier.busy or self._queue.next(courier.sink.name, 1)]

    @staticmethod
    def gave_up(courier: Courier) -> bool:
        """In the foreground this one is not tried any more."""
        return not courier.busy and (courier.state == "blocked" or courier.failures >= TRIES)

    def close(self) -> None:
        """Store what is on its way and let go."""
        for courier in self._couriers:
            receipt = courier.close(wait=5.0)
            if receipt is not None:
                self._store(courier, receipt)
