"""Deliver a run into its tables and to each backend."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.courier import Courier, ParcelReceipt
from autotrace.ship.delivery.into_tables import GATHER as GATHER_FOR_TABLES
from autotrace.ship.delivery.into_tables import open_tables
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry

_log = logging.getLogger("autotrace.ship")


class Delivery:
    """Pass queued trajectories to one courier per destination, and store which trajectories arrived."""

    def __init__(
        self, state: State, run_folder: Path, info: RunInfo, outbox: Outbox, loader: Loader, *, unlimited: bool
    ) -> None:
        """Set up the couriers. ``unlimited``: ignore budgets."""
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._outbox = outbox
        self._queue = outbox.queue
        self._tables = open_tables(run_folder, info.run_id)
        self._decoder = Decoder(run_folder, much=True)
        self._packer = Packer(state, loader, self._decoder, None if unlimited else info.step_budget)
        self._bound = 0
        """Count the reports about the run that were passed on."""
        self._is_closed = self._is_warm = False
        self._couriers = self._made(info.backends)

    def __iter__(self) -> Iterator[Courier]:
        return iter(self._couriers)

    def _made(self, backends: Sequence[str]) -> list[Courier]:
        """Create the courier of the tables, then one courier per backend: some backends read the tables. Raises
        ``registry.BackendError``."""
        self._packer.destinations = 1 + sum(not registry.get(name).from_tables for name in backends)
        into_tables = Courier(TABLES, self._tables, self._packer, gather=GATHER_FOR_TABLES)
        return [into_tables, *map(self._to, backends)]

    def _to(self, name: str) -> Courier:
        backend = registry.usable(name)
        sink = registry.make(name, self._info, self._run_folder, Memory(self._state, f"backend:{name}:"))
        return Courier(name, sink, self._packer, after=TABLES if backend.from_tables else "")

    def replace(self, backends: Sequence[str]) -> None:
        """Deliver to ``backends`` from now on. Raises ``registry.BackendError`` and changes nothing if a backend cannot
        be used."""
        couriers = self._made(backends)
        self._let_go()
        self._couriers, self._bound = couriers, 0
        with self._state:
            self._outbox.deliver_to(backends)

    def put_in_order(self) -> None:
        """Close the sinks and create new sinks. Some sinks put their files in order when closed. Call only while no
        parcel is on the way."""
        self._let_go()
        self._couriers, self._bound = self._made(self._info.backends), 0

    def warm_up(self) -> None:
        """Import the backends' libraries in the background, once."""
        if self._is_warm:
            return
        self._is_warm = True
        for courier in self._couriers[1:]:
            name = courier.name
            threading.Thread(target=self._warmed_up, args=(name,), name=f"warm-up-{name}", daemon=True).start()

    def _warmed_up(self, name: str) -> None:
        try:
            registry.usable(name).warm_up(self._info)
        except Exception:  # delivery reports the error
            _log.debug("%s could not be warmed up", name, exc_info=True)

    # -- delivery ------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Return whether a parcel is on the way."""
        return any(courier.busy for courier in self)

    def deliver(self, sending: bool, coming: bool = False) -> bool:
        """Store the outcome of earlier parcels and, if ``sending``, hand over new parcels. Returns whether something
        moved. ``coming``: more trajectories will follow."""
        self._hand_on_binds()
        moved = False
        for courier in self:
            while (receipt := courier.receipt()) is not None:
                self._store(courier, receipt)
                moved = moved or receipt.moved
            while sending and self._is_ready(courier) and (wanted := courier.next(self._queue, coming)):
                self._hand_on_binds()  # after the look: reports from before a trajectory go first
                courier.send(wanted)
                moved = True
        return moved

    def _is_ready(self, courier: Courier) -> bool:
        """Return whether the courier may get more. The tables wait a little for backends that are at work."""
        others = courier.name == TABLES and any(one.busy and one.state == "ok" for one in self._couriers[1:])
        return courier.ready() and not (others and self._packer.ahead)

    def _hand_on_binds(self) -> None:
        """Pass new reports about the run to the backends and the decoder."""
        for name, value in binds_of(self._state, self._bound):
            self._bound += 1
            if name == "tokenizer":
                self._decoder.bind(value)
            for courier in self:
                courier.bind(name, value)

    def _store(self, courier: Courier, receipt: ParcelReceipt) -> None:
        if receipt.moved or receipt.sent:
            sent = f"backend:{courier.name}:sent"
            with self._state:
                self._queue.acknowledged(courier.name, receipt.delivered)
                self._queue.rejected(courier.name, [*receipt.rejected, *receipt.left_out])
                self._state.put_meta(sent, str(int(self._state.meta(sent) or 0) + receipt.sent))
        for trace_id, _, reason in receipt.rejected:
            _log.warning("%s rejected trace %s: %s", courier.name, trace_id, reason)

    @property
    def blocked(self) -> bool:
        """Return whether some backend cannot go on until the user acts."""
        return any(courier.state == "blocked" for courier in self)

    def unfinished(self) -> list[Courier]:
        """Return the couriers with queued trajectories, except couriers that wait for another courier."""
        return [courier for courier in self if courier.busy or self._queue.next(courier.name, 1, (), courier.after)]

    def notes(self) -> list[str]:
        """List notes for the user: why texts could not be decoded."""
        return [self._decoder.problem] if self._decoder.problem else []

    def _let_go(self) -> None:
        """Store the outcome of parcels on the way and close the sinks."""
        self._hand_on_binds()
        for courier in self:
            for receipt in courier.close(seconds=5.0):
                self._store(courier, receipt)

    def close(self) -> None:
        """Store the outcome of parcels on the way and close the sinks, once."""
        if not self._is_closed:
            self._is_closed = True
            self._let_go()
