"""Who delivers: the shipper itself, or processes of its own (``workers``) while there are to be several.

Where ``--shippers`` was not given, the shipper delivers alone, and with two delivery processes while a backend that
can be reached falls behind and a core is idle."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.run.status import Status
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.delivery.admission import Ledger
from autotrace.ship.delivery.carrier import TablesCarrier, ThreadCarrier
from autotrace.ship.delivery.couriers import Courier, Couriers
from autotrace.ship.delivery.into_tables import GATHER as GATHER_FOR_TABLES
from autotrace.ship.delivery.into_tables import TablesSink
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.delivery.workers import Admit, Workers
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.index.summary import Summaries
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry

IDLE_CORES = 1.0
"""So many must be idle, over ``LOOK_EVERY``, to use one more."""
LOOK_EVERY = 5.0
"""Seconds."""
CALM = 60.0
"""Seconds without a backlog after which the shipper delivers alone again."""
MORE = 2


class Scaling:
    """Decides from the latest status."""

    def __init__(self) -> None:
        self._count = 1
        self._looked = time.monotonic()
        self._idle = _idle_seconds()
        self._backlog_at = 0.0

    def wanted(self, status: Status) -> int:
        """How many delivery processes there should be; 1: none beside the shipper."""
        now = time.monotonic()
        if status.pending:
            self._backlog_at = now
        if self._count > 1 and now - self._backlog_at > CALM:
            self._count = 1
        if now - self._looked < LOOK_EVERY:
            return self._count
        idle = _idle_seconds()
        cores = (idle - self._idle) / (now - self._looked)
        self._looked, self._idle = now, idle
        behind = any(backend.behind for backend in status.backends.values())
        if behind and len(os.sched_getaffinity(0)) > 1 and cores >= IDLE_CORES:
            self._count = MORE
        return self._count


def _idle_seconds() -> float:
    """Seconds of all cores without work since the system was started; 0 where it does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


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
        """``given``: processes that deliver; 0: as many as it takes. ``unlimited``: budgets do not count."""
        self._state = state
        self._run_folder = run_folder
        self._info = info
        self._indexer = indexer
        self._unlimited = unlimited
        self._tables = tables
        self._packer = Packer(state, indexer.loader, decoder)
        self._ledgers: dict[str, Ledger] = {}
        self._given = given
        self._broken = self._closed = self._warm = False
        self._scaling = Scaling()
        self.count = max(1, given)
        """Processes that deliver."""
        self._workers = self._hired()
        self.couriers = Couriers(state, outbox, self._make, info.backends)

    def _hired(self) -> Workers | None:
        """``count`` processes, if that is not the shipper alone."""
        workers = None
        if self.count > 1:
            workers = Workers(self._run_folder, self.count, self._unlimited, self._admit)
        self._indexer.use_summariser(workers or Summaries(self._indexer.loader))
        return workers

    def _make(self, name: str) -> list[Courier]:
        if name == TABLES:
            self._count_destinations()
            free = Ledger(self._state, name, None)
            carrier = ThreadCarrier(self._tables, self._packer, free)
            return [Courier(name, carrier, free, gather=GATHER_FOR_TABLES)]
        ledger = self._ledgers[name] = self._ledger(name)
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
        others = [] if self._workers is not None else [name for name in self._info.backends if self._loads(name)]
        self._packer.destinations = 1 + len(others)

    @staticmethod
    def _loads(name: str) -> bool:
        return not registry.get(name).from_tables

    def _ledger(self, name: str) -> Ledger:
        return Ledger(self._state, name, None if self._unlimited else self._info.step_budget)

    def _admit(self, question: Admit) -> bool:
        ledger = self._ledgers[question.backend]
        return ledger.admits(question.trace_id, question.group, question.step, lambda: question.sizes)

    def scale(self, status: Status | None) -> None:
        """Deliver with as many processes as were asked for, or as ``status`` calls for. A change takes effect once
        nothing is on its way."""
        if self._workers is not None and self._workers.broken and not self._broken:
            self._broken = True
            _log.error("the delivery processes die again and again: the shipper delivers alone")
        wanted = self._given or (1 if status is None else self._scaling.wanted(status))
        wanted = 1 if self._broken else wanted
        if wanted == self.count:
            return
        self.couriers.pause()
        if not self.couriers.busy:
            _log.info("from now on %d of the shipper's processes deliver", wanted)
            before, self.count = self._workers, wanted
            self._workers = self._hired()
            self._remake()
            if before is not None:
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
        if self._broken:
            yield "the delivery processes died again and again, so the shipper delivers alone; why: shipper.log"

    def close(self) -> None:
        """Store what is on its way and let go; once."""
        if self._closed:
            return
        self._closed = True
        self.couriers.close()
        if self._workers is not None:
            self._workers.stop()
