"""Who delivers: the shipper itself, or processes of its own (``workers``) while there are to be several."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.delivery.admission import Ledger
from autotrace.ship.delivery.carrier import TablesCarrier, ThreadCarrier
from autotrace.ship.delivery.couriers import Courier, Couriers
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


class Crew:
    """Makes the couriers of a run, and other ones when the number of processes changes."""

    def __init__(
        self, state: State, run_folder: Path, info: RunInfo, outbox: Outbox, indexer: Indexer, decoder: Decoder,
        tables: TablesSink, *, given: int, unlimited: bool,
    ) -> None:  # fmt: skip
        """``given``: processes that deliver; 1: the shipper alone. ``unlimited``: budgets do not count."""
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._indexer = indexer
        self._unlimited = unlimited
        self._tables = tables
        self._packer = Packer(state, indexer.loader, decoder)
        self._closed = self._warm = False
        self.broken = False
        """The delivery processes died again and again."""
        self._alone = given > 1 and not unlimited and info.step_budget is not None
        """One process counts what a budget allows."""
        self.count = 1 if self._alone else given
        """Processes that deliver."""
        self._workers = self._hired()
        self.couriers = Couriers(state, outbox, self._make, info.backends)

    def _hired(self) -> Workers | None:
        """``count`` processes, if that is not the shipper alone."""
        if self.count < 2:
            return None
        return Workers(self._run_folder, self.count)

    def _make(self, name: str) -> list[Courier]:
        if name == TABLES:
            self._count_destinations()
            free = Ledger(self._state, name, None)
            carrier = ThreadCarrier(self._tables, self._packer, free)
            return [Courier(name, carrier, free, gather=GATHER_FOR_TABLES)]
        ledger = Ledger(self._state, name, None if self._unlimited else self._info.step_budget)
        backend = registry.usable(name)
        if backend.from_tables:
            sink = registry.make(name, self._info, self._run_folder, Memory(self._state, f"backend:{name}:"))
            return [Courier(name, TablesCarrier(sink), ledger, gather=backend.gather, after=TABLES)]
        if self._workers is not None:
            carriers = self._workers.carriers(name, backend.parallel)
            return [Courier(name, carrier, ledger, share, backend.gather) for carrier, share in carriers]
        sink = registry.make(name, self._info, self._run_folder, Memory(self._state, f"backend:{name}:"))
        return [Courier(name, ThreadCarrier(sink, self._packer, ledger), ledger, gather=backend.gather)]

    def _count_destinations(self) -> None:
        """How many get each trajectory from this process."""
        alone = self._workers is None
        self._packer.destinations = 1 + sum(
            alone and not registry.get(name).from_tables for name in self._info.backends
        )

    def relieve(self) -> None:
        """Deliver alone if the delivery processes die again and again, once nothing is on its way."""
        if self._workers is None or not (self.broken or self._workers.broken):
            return
        if not self.broken:
            self.broken = True
            _log.error("the delivery processes die again and again: the shipper delivers alone")
        self.couriers.pause()
        if not self.couriers.busy:
            before, self.count = self._workers, 1
            self._workers = self._hired()
            self._remake()
            before.stop()

    def put_in_order(self) -> None:
        """Close the sinks and make them anew. Some sinks put their files in order when they are closed. Call it only
        while nothing is on its way."""
        if self._workers is None:
            self._remake()
        else:  # their sinks are in other processes
            self._tables.close()

    def _remake(self) -> None:
        self.couriers.remake()
        for name, value in self._indexer.binds:
            self.couriers.bind(name, value)

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

    def restart(self) -> None:
        """What is known about the run has changed: delivery processes have to read it again."""
        if self._workers is not None:
            self._workers.stop()

    def rest(self, seconds: float) -> None:
        """Nothing is to be done for so long, or until delivery processes answer; 0: there may be at once."""
        if self._workers is None:
            if seconds:
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
        if self.broken:
            yield "the delivery processes died again and again, so the shipper delivers alone; why: shipper.log"

    def close(self) -> None:
        """Store what is on its way and let go; once."""
        if self._closed:
            return
        self._closed = True
        self.couriers.close()
        if self._workers is not None:
            self._workers.stop()
