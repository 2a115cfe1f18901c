"""All couriers of a run: one into its tables, one to each backend, or one to each of several delivery processes
(``workers``). They are given what waits in the delivery queue, and what came of it is stored."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.delivery.carrier import Receipt, ThreadCarrier
from autotrace.ship.delivery.courier import Courier
from autotrace.ship.delivery.into_tables import GATHER as GATHER_FOR_TABLES
from autotrace.ship.delivery.into_tables import TablesSink
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.delivery.workers import Workers
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry

_log = logging.getLogger("autotrace.ship")

GATHER = 0.02
"""Seconds in which answers of delivery processes come together, so that each round has several to store. What the
processes have been given keeps them busy for longer."""


class Couriers:
    """Delivers what is in the outbox of a run, and makes other couriers when the backends or the number of processes
    change."""

    def __init__(
        self, state: State, run_folder: Path, info: RunInfo, outbox: Outbox, indexer: Indexer, decoder: Decoder,
        tables: TablesSink, *, processes: int, unlimited: bool,
    ) -> None:  # fmt: skip
        """``processes``: how many deliver; 1: the shipper alone. ``unlimited``: budgets do not count."""
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._outbox = outbox
        self._indexer = indexer
        self._tables = tables
        budget = None if unlimited else info.step_budget
        self._packer = Packer(state, indexer.loader, decoder, budget)
        self._closed = self._warm = self._broken = False
        self._alone = processes > 1 and budget is not None
        """One process counts what a budget allows."""
        self._workers = None if self._alone or processes < 2 else Workers(run_folder, processes)
        self._couriers = self._made(info.backends)

    @property
    def processes(self) -> int:
        """How many deliver."""
        return 1 if self._workers is None else self._workers.count

    def __iter__(self) -> Iterator[Courier]:
        return iter(self._couriers)

    # -- who delivers --------------------------------------------------------------------------------------------------

    def _made(self, backends: Iterable[str]) -> list[Courier]:
        """The one into the tables comes first: some backends take what they need from there. Raises
        ``registry.BackendError``."""
        loads = 0 if self._workers else sum(not registry.get(name).from_tables for name in backends)
        self._packer.destinations = 1 + loads
        into_tables = Courier(TABLES, ThreadCarrier(self._tables, self._packer), gather=GATHER_FOR_TABLES)
        return [into_tables, *(courier for name in backends for courier in self._to(name))]

    def _to(self, name: str) -> list[Courier]:
        backend = registry.usable(name)
        if self._workers is not None and not backend.from_tables:
            carriers = self._workers.carriers(name, backend.parallel)
            return [Courier(name, carrier, share, gather=backend.gather) for carrier, share in carriers]
        sink = registry.make(name, self._info, self._run_folder, Memory(self._state, f"backend:{name}:"))
        carrier = ThreadCarrier(sink, self._packer, backend.from_tables)
        return [Courier(name, carrier, gather=backend.gather, after=TABLES if backend.from_tables else "")]

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something about the run to all backends."""
        for courier in self._couriers:
            courier.bind(name, value)

    def replace(self, backends: Sequence[str]) -> None:
        """Deliver to ``backends`` from now on. Raises ``registry.BackendError`` when one of them cannot be used; then
        nothing has changed."""
        couriers = self._made(backends)
        self._let_go()
        self._couriers = couriers
        with self._state:
            self._outbox.deliver_to(backends)

    def restart(self) -> None:
        """What is known about the run has changed: delivery processes have to read it again."""
        if self._workers is not None:
            self._workers.stop()

    def put_in_order(self) -> None:
        """Close the sinks and make them anew. Some sinks put their files in order when they are closed. Call it only
        while nothing is on its way."""
        if self._workers is None:
            self._remake()
        else:  # their sinks are in other processes
            self._tables.close()

    def _remake(self) -> None:
        self._let_go()
        self._couriers = self._made(self._info.backends)
        for name, value in self._indexer.binds:
            self.bind(name, value)

    def warm_up(self) -> None:
        """Have the backends import what they need, in the background; once. Delivery processes import for
        themselves."""
        if self._warm or self._workers is not None:
            return
        self._warm = True
        for name in self._info.backends:
            threading.Thread(target=self._warmed_up, args=(name,), name=f"warm-up-{name}", daemon=True).start()

    def _warmed_up(self, name: str) -> None:
        try:
            registry.usable(name).warm_up(self._info)
        except Exception:  # delivery says it
            _log.debug("%s could not be warmed up", name, exc_info=True)

    # -- delivery ------------------------------------------------------------------------------------------------------

    def deliver(self, sending: bool, coming: bool = False) -> bool:
        """Store what came of earlier parcels and, if ``sending``, hand over new ones; True when something moved.
        ``coming``: there will be more to deliver."""
        sending = sending and not self._left_to_the_shipper()
        moved = False
        for courier in self._couriers:
            while (receipt := courier.receipt()) is not None:
                self._store(courier, receipt)
                moved = moved or receipt.moved
            while sending and self._ready(courier) and (wanted := courier.next(self._outbox.queue, coming)):
                courier.send(wanted)
                moved = True
        return moved

    def _ready(self, courier: Courier) -> bool:
        """It may be given more. The tables wait a little for backends that are at work."""
        others = courier.name == TABLES and any(one.busy and one.state == "ok" for one in self._couriers[1:])
        return courier.ready() and not (others and self._packer.ahead)

    def _left_to_the_shipper(self) -> bool:
        """Delivery processes that die again and again end, once nothing is on its way; whether that is waited for."""
        if self._workers is None or not (self._broken or self._workers.broken):
            return False
        if not self._broken:
            self._broken = True
            _log.error("the delivery processes die again and again: the shipper delivers alone")
        if self.busy:
            return True
        self._workers.stop()
        self._workers = None
        self._remake()
        return False

    def _store(self, courier: Courier, receipt: Receipt) -> None:
        if receipt.moved or receipt.sent:
            queue, sent = self._outbox.queue, f"backend:{courier.name}:sent"
            with self._state:
                queue.acknowledged(courier.name, receipt.delivered)
                queue.rejected(courier.name, [*receipt.rejected, *receipt.left_out])
                self._state.put_meta(sent, str(int(self._state.meta(sent) or 0) + receipt.sent))
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
        queue = self._outbox.queue
        found = [c for c in self._couriers if c.busy or queue.next(c.name, 1, c.share)]
        names = {c.name for c in found}
        return [
            c for c in found
            if c.busy or c.after not in names or queue.next(c.name, 1, c.share, after=c.after)
        ]  # fmt: skip

    def rest(self, seconds: float) -> None:
        """Nothing is to be done for so long, or until delivery processes answer; 0: there may be at once."""
        if self._workers is None:
            time.sleep(seconds)
        else:
            time.sleep(GATHER)
            self._workers.listen(max(0.0, seconds - GATHER))

    def notes(self) -> Iterator[str]:
        """Notes for the user."""
        if self._workers is not None:
            yield from self._workers.notes()
        if self._alone:
            yield "one process counts what --step-budget allows, so the shipper delivers alone"
        if self._broken:
            yield "the delivery processes died again and again, so the shipper delivers alone; why: shipper.log"

    def _let_go(self) -> None:
        """Store what is on its way and let go of the sinks."""
        for courier in self._couriers:
            for receipt in courier.close(seconds=5.0):
                self._store(courier, receipt)

    def close(self) -> None:
        """Store what is on its way and let go; once."""
        if self._closed:
            return
        self._closed = True
        self._let_go()
        if self._workers is not None:
            self._workers.stop()
