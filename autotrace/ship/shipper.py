"""The shipper: reads a run's segments while it goes on, delivers what is complete, ends after the run.

It may be killed at any point: what it knows is in the state, what it has not delivered is in the segments.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.run.lock import ShipperLock
from autotrace.run.status import Status
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.backend_choice import heed
from autotrace.ship.cluster.receiver import Receiver
from autotrace.ship.delivery.budgets import Ledger, MonthBook
from autotrace.ship.delivery.courier import Courier
from autotrace.ship.delivery.packing import Packer
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.main_process import MainProcess
from autotrace.ship.report import status_of
from autotrace.ship.retention import Room
from autotrace.ship.store.state import Memory, State
from autotrace.sinks import registry

_log = logging.getLogger("autotrace.ship")

POLL = 0.3
"""Seconds between two looks at the segments while nothing happens."""
IDLE = 1.0
"""Seconds without a new record after which a living process under ``drain`` is no longer waited for."""
LAST_TRIES = 600.0
"""Seconds after the end of the run (beyond its drain timeout) for which an unreachable backend is tried again."""
RELAY_GRACE = 3.0
"""Seconds after the end of the run, or after a relay's last word, in which other nodes may still send."""
ONCE_FAILURES = 4
"""In the foreground: failed tries in a row after which a backend is given up."""


class Shipper:
    """One run's shipper. ``step`` does everything there is to do now and returns the state."""

    def __init__(self, run_folder: str | Path, *, once: bool = False, everything: bool = False) -> None:
        self.run_folder = Path(run_folder)
        self.info = RunInfo.read(self.run_folder)
        self.once = once
        self.stopped = False
        """Set by a signal: commit and end."""
        self._state = State.of_run(self.run_folder)
        self._indexer = Indexer(self._state, self.run_folder, self.info, self.info.backends)
        self._decoder = Decoder(self.run_folder)
        self._room = Room(self._state, self.run_folder)
        self._packer = Packer(self._state, self._indexer.loader, self._decoder)
        self._unlimited = everything
        self._couriers = [self._courier(name) for name in self.info.backends]
        self._receiver: Receiver | None = None
        """Takes what other nodes record, once there are any."""
        self._deaf = ""
        """Why it cannot listen for them."""
        self._unheeded = ""
        """Why veRL's choice of a backend could not be followed."""
        self._bound = 0
        self._main = MainProcess(self.info.main_pid, self.info.host)
        self._written = 0.0
        self._status = Status("running", self.info.run_id)
        with self._state:
            if everything:
                self._state.keep_all()
            for name in self.info.backends:
                self._state.enqueue_missing(name)
                if once:  # a person asks for it: what was rejected may be taken by now
                    self._state.enqueue_rejected(name)

    # -- one round -----------------------------------------------------------------------------------------------------

    def step(self) -> tuple[str, bool]:
        """Read, decide, deliver; ``(state, something happened)`` with the state as in ``Status``."""
        gone_for = self._main.gone_for()
        draining = self.once or gone_for > 0 or (self.run_folder / layout.DRAIN).exists()
        self._listen()
        read = self._indexer.round()
        self._tell_sinks()
        living = self._indexer.processes.living()
        over = gone_for > 0 and (not living or gone_for > self.info.drain_timeout) and not read
        over = over and not self._expects_relays(gone_for)
        settled = self._indexer.settle(over)
        moved = self._deliver()
        self._room.make()
        return self._verdict(draining, bool(living), over), bool(read or settled or moved)

    def _courier(self, name: str) -> Courier:
        memory = Memory(self._state, f"backend:{name}:")
        budgets = (None, None) if self._unlimited else (self.info.step_budget, self.info.month_budget)
        ledger = Ledger(self._state, name, MonthBook(self.run_folder, self.info.run_id), *budgets)
        return Courier(registry.make(name, self.info, self.run_folder, memory), ledger)

    def _listen(self) -> None:
        if self._receiver is None and not self.once and (self.run_folder / layout.LISTEN).exists():
            host, _, port = os.environ.get(env.LISTEN, "").rpartition(":")
            try:
                towards = (self.run_folder / layout.LISTEN).read_text().strip()
                self._receiver = Receiver(self.run_folder, host or "0.0.0.0", int(port or 0), towards)
                self._receiver.publish(self.run_folder)
                self._indexer.clocks = self._receiver.clocks
            except (OSError, ValueError) as error:
                if not self._deaf:
                    _log.error("cannot listen for other nodes: %s", error)
                self._deaf = str(error)
        if self._receiver is not None:
            self._receiver.forget_the_silent()

    def _expects_relays(self, gone_for: float) -> bool:
        """The run has ended, but what other nodes wrote last may still be under way."""
        receiver = self._receiver
        return receiver is not None and min(gone_for, time.monotonic() - receiver.last_heard) < RELAY_GRACE

    def _tell_sinks(self) -> None:
        new = self._indexer.binds[self._bound :]
        if any(name == "verl_trace" and heed(self.info, value) for name, value in new):
            self._redirect()
            new = self._indexer.binds
        for name, value in new:
            if name == "tokenizer":
                self._decoder.bind(value)
            for courier in self._couriers:
                courier.bind(name, value)
        self._bound = len(self._indexer.binds)

    def _redirect(self) -> None:
        """The backends are others now (before anything was delivered: veRL says so before the first rollout)."""
        try:
            couriers = [self._courier(name) for name in self.info.backends]
        except registry.BackendError as error:
            (wanted,) = self.info.backends
            self.info.backends[:] = [courier.sink.name for courier in self._couriers]
            self._unheeded = (
                f"veRL's configuration names the backend {wanted}: {error}, then "
                f"autotrace ship {self.info.run_id} --backend {wanted}"
            )
            return
        for courier in self._couriers:
            courier.close(wait=5.0)
        self._couriers = couriers
        self.info.write(self.run_folder)
        with self._state:
            self._state.dequeue_others(self.info.backends)
            for name in self.info.backends:
                self._state.enqueue_missing(name)

    def _deliver(self) -> bool:
        moved = False
        for courier in self._couriers:
            moved = self._collect(courier) or moved
            if courier.ready() and not self.stopped:
                parcel, left_out = self._packer.parcel(courier)
                if left_out:
                    with self._state:
                        self._state.refused(courier.sink.name, left_out)
                if parcel is not None:
                    courier.send(parcel)
                    moved = True
        return moved

    def _collect(self, courier: Courier) -> bool:
        receipt = courier.receipt()
        if receipt is None:
            return False
        with self._state:
            self._state.acknowledged(courier.sink.name, receipt.delivered)
            self._state.refused(courier.sink.name, receipt.rejected)
            courier.ledger.sent(receipt.sent)
        for trace_id, _, reason in receipt.rejected:
            _log.warning("%s will not take trace %s: %s", courier.sink.name, trace_id, reason)
        return receipt.problem is None

    def _verdict(self, draining: bool, living: bool, over: bool) -> str:
        if not draining:
            return "blocked" if any(courier.state == "blocked" for courier in self._couriers) else "running"
        quiet = time.monotonic() - self._indexer.last_progress > IDLE
        if self._indexer.live or self._indexer.gate.undecided or (living and not over and not quiet and not self.once):
            return "draining"
        unfinished = [courier for courier in self._couriers if courier.busy or self._queued(courier)]
        if not unfinished:
            return "done"
        return "blocked" if all(courier.state == "blocked" for courier in unfinished) else "draining"

    def _queued(self, courier: Courier) -> bool:
        return bool(self._state.next_in_queue(courier.sink.name, 1))

    # -- the whole life ------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Until the run is over and everything is delivered or given up."""
        while not self.stopped:
            state, moved = self.step()
            gone_for = self._main.gone_for()
            if gone_for > 0:
                alone = not self._indexer.processes.living() or gone_for > self.info.drain_timeout
                alone = alone and not self._expects_relays(gone_for)
                given_up = gone_for > self.info.drain_timeout + LAST_TRIES
                if alone and (state == "done" or given_up):
                    self.write(state if state == "done" else "blocked")
                    return
            self.write(state)
            if not moved:
                time.sleep(POLL / 6 if any(courier.busy for courier in self._couriers) else POLL)
        self.write("running")

    def deliver_all(self, progress: Callable[[Status], None] | None = None) -> Status:
        """In the foreground: deliver what is there, give a backend up after a few failed tries in a row."""
        self._indexer.processes.probe_all()
        while not self.stopped:
            state, moved = self.step()
            silent = not moved and time.monotonic() - self._indexer.last_progress > IDLE
            going_on = silent and self._indexer.live and self._indexer.processes.living()
            if state == "done" or (going_on and not self._anything_to_send()):
                return self.write("done" if state == "done" else "running", progress)
            tried = [courier for courier in self._couriers if courier.busy or self._queued(courier)]
            if tried and all(not courier.busy and self._gave_up(courier) for courier in tried):
                return self.write("blocked", progress)
            self.write(state, progress)
            if not moved:
                time.sleep(POLL / 6)
        return self.write("blocked", progress)

    def _anything_to_send(self) -> bool:
        return any(courier.busy or self._queued(courier) for courier in self._couriers)

    def _gave_up(self, courier: Courier) -> bool:
        return courier.state == "blocked" or courier.failures >= ONCE_FAILURES

    def write(self, state: str, progress: Callable[[Status], None] | None = None) -> Status:
        """Write ``status.json``, about once a second and whenever the state changes."""
        now = time.monotonic()
        final = state in ("done", "blocked")
        if state == self._status.state and now - self._written < (0.25 if progress or final else 1.0):
            return self._status
        self._written = now
        status = self._status = status_of(self._state, self.info, self.run_folder, state)
        for courier in self._couriers:
            told = status.backends[courier.sink.name]
            told.state, told.error = courier.state, courier.error
        status.error = next((courier.error for courier in self._couriers if courier.error), None)
        if self._decoder.problem:
            status.notes.append(self._decoder.problem)
        if self._unheeded:
            status.notes.append(self._unheeded)
        if self._deaf and self._receiver is None:
            status.notes.append(f"other nodes cannot send what they record: {self._deaf}")
        for node in self._receiver.silent if self._receiver is not None else ():
            status.notes.append(f"{node} went away, or cannot be reached: what it records stays on its disk")
        try:
            status.write(self.run_folder)
        except OSError as error:
            _log.error("cannot write %s: %s", layout.STATUS_JSON, error)
        if progress is not None:
            progress(status)
        return status

    def close(self) -> None:
        """Commit what is on its way and let go."""
        for courier in self._couriers:
            receipt = courier.close(wait=5.0)
            if receipt is not None:
                with self._state:
                    self._state.acknowledged(courier.sink.name, receipt.delivered)
                    self._state.refused(courier.sink.name, receipt.rejected)
                    courier.ledger.sent(receipt.sent)
        if self._receiver is not None:
            self._receiver.close()
        self._main.close()
        self._state.close()


def ship(
    run_folder: Path, *, once: bool, everything: bool = False, progress: Callable[[Status], None] | None = None
) -> Status:
    """Run the shipper of ``run_folder`` here. ``once``: deliver what is left and return; else until the run is over.
    ``everything``: also what the keep-rules left in the spool.

    When another shipper of this run is at work, its status is returned. Raises ``OSError``, ``msgspec.DecodeError`` or
    ``sqlite3.Error`` when the folder cannot be used.
    """
    with ShipperLock(run_folder) as lock:
        if not lock.held:
            return Status.read(run_folder)
        shipper = Shipper(run_folder, once=once, everything=everything)
        try:
            if once:
                return shipper.deliver_all(progress)
            shipper.follow()
            return Status.read(run_folder)
        finally:
            shipper.close()
