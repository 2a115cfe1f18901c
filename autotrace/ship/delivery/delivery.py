"""All delivery of a run: into its tables, and to each backend, by the shipper itself or by delivery processes
(``deliverers``)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.carrier import Carrier
from autotrace.ship.delivery.courier import Courier, Couriers
from autotrace.ship.delivery.deliverers import GIVE_UP, KEYS, Deliverer, Remote, said, say
from autotrace.ship.delivery.into_tables import GATHER as GATHER_FOR_TABLES
from autotrace.ship.delivery.into_tables import TablesSink
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.store.delivery_queue import TABLES, WHOLE, Share
from autotrace.ship.store.state import State
from autotrace.sinks import registry

_log = logging.getLogger("autotrace.ship")


class Delivery(Couriers):
    """Delivers what is in the outbox of a run, and makes other couriers when the backends or the number of processes
    change."""

    def __init__(
        self, state: State, run_folder: Path, info: RunInfo, outbox: Outbox, loader: Loader, tables: TablesSink, *,
        processes: int, unlimited: bool,
    ) -> None:  # fmt: skip
        """``processes``: how many deliver; 1: the shipper alone. ``unlimited``: budgets do not count."""
        budget = None if unlimited else info.step_budget
        super().__init__(state, run_folder, info, loader, budget)
        self._outbox = outbox
        self._tables = tables
        self._closed = self._warm = False
        self._alone = ""
        """Why the shipper delivers alone, although more processes were asked for."""
        if processes > 1 and budget is not None:
            processes, self._alone = 1, "one process counts what --step-budget allows, so the shipper delivers alone"
        self._deliverers = [Deliverer(state, run_folder, number) for number in range(processes if processes > 1 else 0)]
        self.own = self._made(info.backends)
        with state:
            state.db.execute("DELETE FROM meta WHERE key GLOB ?", (f"{KEYS}*",))
        self._deal(info.backends)

    @property
    def processes(self) -> int:
        """How many deliver."""
        return len(self._deliverers) or 1

    def __iter__(self) -> Iterator[Courier | Remote]:
        yield from self.own
        yield from self._remotes()

    def _remotes(self) -> Iterator[Remote]:
        for one in self._deliverers:
            yield from said(self._state, one.key)

    # -- who delivers --------------------------------------------------------------------------------------------------

    def _made(self, backends: Sequence[str]) -> list[Courier]:
        """The one into the tables comes first: some backends take what they need from there. Raises
        ``registry.BackendError``."""
        here = [name for name in backends if registry.usable(name).from_tables or not self._deliverers]
        self._packer.destinations = 1 + sum(not registry.get(name).from_tables for name in here)
        into_tables = Courier(TABLES, Carrier(self._tables, self._packer), gather=GATHER_FOR_TABLES)
        return [into_tables, *(self.to(name, WHOLE) for name in here)]

    def _deal(self, backends: Sequence[str]) -> None:
        """What is to be delivered to ``backends`` is for the delivery processes, which do not run now. The first one
        delivers all to a backend that cannot be called by several at once."""
        described = [backend for backend in map(registry.get, backends) if not backend.from_tables]
        for number, one in enumerate(self._deliverers):
            share = Share(number, self.processes)
            dealt = [backend for backend in described if backend.parallel or number == 0]
            say(self._state, one.key, [Remote(to.name, share if to.parallel else WHOLE) for to in dealt])

    def replace(self, backends: Sequence[str]) -> None:
        """Deliver to ``backends`` from now on. Raises ``registry.BackendError`` when one of them cannot be used; then
        nothing has changed."""
        couriers = self._made(backends)
        self.let_go()
        self.own, self._bound = couriers, 0
        self._deal(backends)
        with self._state:
            self._outbox.deliver_to(backends)

    def put_in_order(self) -> None:
        """Close the sinks and make them anew. Some sinks put their files in order when they are closed. Call it only
        while nothing is on its way."""
        self.let_go()
        if self._broken:
            self._deliverers = []
        self.own, self._bound = self._made(self._info.backends), 0

    def warm_up(self) -> None:
        """Have the backends import what they need, in the background; once. Delivery processes import for
        themselves."""
        if self._warm:
            return
        self._warm = True
        for courier in self.own[1:]:
            name = courier.name
            threading.Thread(target=self._warmed_up, args=(name,), name=f"warm-up-{name}", daemon=True).start()

    def _warmed_up(self, name: str) -> None:
        try:
            registry.usable(name).warm_up(self._info)
        except Exception:  # delivery says it
            _log.debug("%s could not be warmed up", name, exc_info=True)

    # -- delivery ------------------------------------------------------------------------------------------------------

    def deliver(self, sending: bool, coming: bool = False) -> bool:
        """See ``Couriers``. When delivery processes die again and again, the shipper delivers alone, once nothing is on
        its way here."""
        if self._broken and not self.busy:
            _log.error("the delivery processes die again and again: the shipper delivers alone")
            self._alone = "the delivery processes died again and again, so the shipper delivers alone; why: shipper.log"
            self.put_in_order()
        sending = sending and not self._broken
        for one in self._deliverers if sending else ():
            one.keep()
        return super().deliver(sending, coming)

    @property
    def _broken(self) -> bool:
        return any(one.deaths >= GIVE_UP for one in self._deliverers)

    @property
    def blocked(self) -> bool:
        """Some backend cannot go on until the user acts."""
        return any(courier.state == "blocked" for courier in self)

    def unfinished(self) -> list[Courier | Remote]:
        """Those that still have something to deliver, except for those that wait for another one of them."""
        return [c for c in self if c.busy or self._queue.waits(c.name, c.share, c.after)]

    def notes(self) -> list[str]:
        """Notes for the user."""
        notes = [self.decoder.problem, *(one.note for one in self._remotes()), self._alone]
        return list(dict.fromkeys(filter(None, notes)))

    def let_go(self) -> None:
        """See ``Couriers``."""
        super().let_go()
        for one in self._deliverers:
            one.ask()
        for one in self._deliverers:
            one.stop()

    def close(self) -> None:
        """Store what is on its way and let go; once."""
        if not self._closed:
            self._closed = True
            self.let_go()
