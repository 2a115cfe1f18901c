"""Read a run's segments while the run goes on, deliver complete traces, and end after the run.

The shipper may be killed at any point: the state has everything read, and the segments have everything undelivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from autotrace.run import layout
from autotrace.run.info import RunInfo
from autotrace.run.shipper_process import ShipperLock
from autotrace.run.status import Status
from autotrace.ship import process
from autotrace.ship.alerts import Alerts
from autotrace.ship.assembly.about_run import binds_of
from autotrace.ship.assembly.recent import AHEAD
from autotrace.ship.cluster.receiver import Listening
from autotrace.ship.delivery.delivery import Delivery
from autotrace.ship.delivery.outbox import QUIET, Outbox
from autotrace.ship.delivery.reporting import Reporting
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.live_findings import LiveFindings
from autotrace.ship.pace import Pace
from autotrace.ship.process import MainProcess, TerminalTitle
from autotrace.ship.report import chosen_backends, origin_of, status_of, title_of
from autotrace.ship.retention import Retention, restore
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.row import ALL
from autotrace.ship.store.state import State
from autotrace.sinks import registry
from autotrace.tables.errors import QueryError

_log = logging.getLogger("autotrace.ship")

POLL = 0.3
"""Wait so many seconds between two looks at the segments while nothing happens."""
LOOK = 0.05
"""Wait so many seconds between two looks while somebody waits, and between two looks whether somebody waits."""
IDLE = 1.0
"""Stop waiting for a living process under ``drain`` after so many seconds without a new record."""
LAST_TRIES = 600.0
"""Try an unreachable backend for so many seconds after the end of the run (beyond its drain timeout)."""


class Shipper:
    """Ship one run. ``step`` does everything that is due now and returns the state."""

    def __init__(self, run_folder: str | Path, *, once: bool = False, everything: bool = False) -> None:
        self.run_folder = Path(run_folder)
        self.info = RunInfo.read(self.run_folder)
        self.once = once
        self.stopped = False
        """Store that a signal arrived: commit and end."""
        self._state = State.of_run(self.run_folder)
        try:
            restore(self._state, self.run_folder)
        except (OSError, QueryError, msgspec.MsgspecError) as error:
            # backends still get the trajectories of the segments
            _log.warning("the tables cannot be read: %s", error)
        self._outbox = Outbox(self._state, self.info)
        self._reporting = Reporting(self._state, self.info)
        self._alerts = Alerts(self._state, self.info, self.run_folder, self._stop_run)
        self._live = LiveFindings(self._state, self._outbox, self._reporting.add, self._alerts.found)
        self._indexer = Indexer(
            self._state, self.run_folder, self.info, (self._outbox, self._live, self._reporting), AHEAD
        )
        self._retention = Retention(self._state, self.run_folder, self._indexer.has_news)
        self._delivery = Delivery(
            self._state, self.run_folder, self.info, self._outbox, self._indexer.loader, unlimited=everything
        )
        self._listening = Listening(self.run_folder)
        self._unusable_choice = ""
        """Store why veRL's choice of a backend could not be followed."""
        self._bound = 0
        self._asked_at: float | None = None
        """Store when the first process was first seen to wait for delivery."""
        self._main = MainProcess(self.info.main_pid, self.info.host)
        self._title = TerminalTitle(-1, False)
        self._pace = Pace()
        self._status: Status | None = None
        """Store the status that was written last."""
        self._written = 0.0
        with self._state:
            if everything:  # with traces that the keep-rules left in the run folder
                self._state.db.execute("UPDATE traces SET kept = ? WHERE complete = 1", (ALL,))
            self._outbox.queue.add_missing(TABLES, everything=True)
            for name in self.info.backends:
                self._outbox.queue.add_missing(name)
                if once:  # started by the user: a backend may now accept rejected trajectories
                    self._outbox.queue.add_again(name, rejected=True)

    # -- one round -----------------------------------------------------------------------------------------------------

    def step(self) -> tuple[str, bool]:
        """Read, decide, deliver; return ``(state, something happened)`` with the state as in ``Status``."""
        gone_for = self._main.gone_for()
        waited_for = self._waited_for()  # before reading: every record is older than this question
        draining = self.once or gone_for > 0 or waited_for > 0
        if self.once or (waited_for > 0 and gone_for <= 0):
            self._indexer.look_at_locks()
        if not self.once:
            self._listening.look()
            self._indexer.clocks = self._listening.clocks
        read = self._indexer.behind or self._indexer.round()
        self._follow_choice()
        living = self._indexer.living
        over = self._run_is_over(gone_for, waited_for) and not read
        settled = self._indexer.settle(over) + self._outbox.settle(self._indexer.open_groups, over)
        looked = self._live.settle(self._indexer.open_steps, over)
        coming = self._indexer.open_traces > 0 and self._indexer.has_room
        self._alerts.settle(self._indexer.open_traces)
        moved = self._delivery.deliver(not self.stopped, coming) | self._reporting.deliver(self._delivery, over)
        self._retention.make_room()
        return self._verdict(draining, living, over), bool(read or settled or looked or moved)

    def _waited_for(self) -> float:
        """Return the seconds since the first process was first seen to wait for delivery, its last act; 0.0: not
        waiting."""
        if self._asked_at is None and (self.run_folder / layout.DRAIN).exists():
            self._asked_at = time.monotonic()
        return 0.0 if self._asked_at is None else max(1e-9, time.monotonic() - self._asked_at)

    def _run_is_over(self, gone_for: float, waited_for: float = 0.0) -> bool:
        """Return whether the first process has ended or waits for delivery, and all other processes have ended or their
        drain timeout has passed."""
        ended_for = max(gone_for, waited_for)
        if ended_for <= 0 or self._listening.expects_more(ended_for):
            return False
        return not self._indexer.living or gone_for > self.info.drain_timeout

    def _follow_choice(self) -> None:
        """Follow a choice of backends among the reports about the run since the last round."""
        for name, value in binds_of(self._state, self._bound):
            self._bound += 1
            if name == "verl_trace" and (backends := chosen_backends(self.info, value)):
                self._redirect(backends, value)

    def _redirect(self, backends: list[str], settings: dict[str, object]) -> None:
        """Deliver to ``backends`` from now on (before any delivery: veRL reports its choice before the first
        rollout), if the backends can be used."""
        try:
            self._delivery.replace(backends)
        except registry.BackendError as error:
            self._unusable_choice = (
                f"veRL's configuration names the backend {backends[0]}: {error}, then "
                f"autotrace ship {self.info.run_id} --backend {backends[0]}"
            )
            return
        self.info.backends = backends
        self.info.origins = {**self.info.origins, "backends": origin_of(settings, "backend")}
        self.info.write(self.run_folder)

    def _verdict(self, draining: bool, living: bool, over: bool) -> str:
        if not draining:
            return "blocked" if self._delivery.blocked else "running"
        awaited = living and not over and self._indexer.quiet_for <= IDLE and not self.once
        if self._indexer.unread or self._indexer.open_traces or self._outbox.undecided or self._live.waiting or awaited:
            return "draining"
        unfinished = self._delivery.unfinished()
        if not unfinished:
            return "draining" if self._reporting.busy else "done"
        return "blocked" if all(courier.state == "blocked" for courier in unfinished) else "draining"

    def _stop_run(self) -> bool:
        """End the run (``--stop-on``), unless the run is already ending; return whether the run was asked to end."""
        ending = self._asked_at is not None or (self.run_folder / layout.ENDING).exists()
        if self.once or ending or self._main.gone_for() > 0:
            return False
        self._main.terminate(self._indexer.living_here())
        return True

    # -- the whole life ------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Ship until the run is over and everything is delivered or given up."""
        in_order = False
        first = not (self.run_folder / layout.STATUS_JSON).exists()
        self._title = TerminalTitle(-1 if self._main.gone_for() else self.info.main_pid, first)
        while not self.stopped:
            state, moved = self.step()
            if self._indexer.open_traces:
                self._delivery.warm_up()
            gone_for = self._main.gone_for()
            if self._asked_at is not None or gone_for > 0:  # before the first process hears that delivery is done
                self._title.close()
            if self._run_is_over(gone_for):
                gave_up = gone_for > self.info.drain_timeout + LAST_TRIES
                if state == "done" or gave_up:
                    self._end(state)
                    return
            if state == "done" and not in_order:  # the first process waits for this
                self._delivery.put_in_order()
            in_order = state == "done"
            self._title.show(title_of(self.write(state)))
            process.collect_garbage()
            awaited = self._asked_at is not None and gone_for <= 0
            if not moved:
                self._rest(LOOK if self._delivery.busy or awaited else POLL)
        self.write("running")

    def _rest(self, seconds: float) -> None:
        """Wait ``seconds``, or until the first process begins to wait for delivery."""
        end = time.monotonic() + seconds
        was_asked = self._asked_at is not None
        while not self.stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            if not was_asked and self._waited_for() > 0:
                return

    def deliver_all(self, progress: Callable[[Status], None] | None = None) -> Status:
        """Deliver the present records in the foreground; give a backend up after a few failed tries in a row."""
        while not self.stopped:
            idle = self._indexer.quiet_for > IDLE  # before the step: the step completes everything complete by then
            state, moved = self.step()
            unfinished = self._delivery.unfinished()
            going_on = self._indexer.open_traces and self._indexer.living
            if not moved and going_on and idle and not unfinished:
                return self.write("running", progress)
            if state == "done":
                return self._end(state, progress)
            waiting = self._indexer.open_traces or self._outbox.undecided
            others = moved or (waiting and self._indexer.quiet_for <= QUIET + IDLE)  # more may come
            if unfinished and not others and all(courier.gave_up for courier in unfinished):
                return self.write("blocked", progress)
            self.write(state, progress)
            time.sleep(0.0 if moved else LOOK)
        return self.write("blocked", progress)

    def _end(self, state: str, progress: Callable[[Status], None] | None = None) -> Status:
        """Write the last status. The sinks are closed before: some sinks then put their files in order, and the files
        are read next."""
        self._delivery.close()
        self._alerts.close()
        if state == "done":
            self._retention.make_room(over=True)
        return self.write("done" if state == "done" else "blocked", progress)

    def write(self, state: str, progress: Callable[[Status], None] | None = None) -> Status:
        """Write ``status.json``, about once a second and whenever the state changes. ``progress`` gets the status, and
        more often."""
        now = time.monotonic()
        often = progress is not None or state in ("done", "blocked")
        latest = self._status
        if latest is not None and state == latest.state and now - self._written < (0.25 if often else 1.0):
            return latest
        self._written = now
        status = self._status = self._computed(state)
        try:
            status.write(self.run_folder)
        except OSError as error:
            _log.error("cannot write %s: %s", layout.STATUS_JSON, error)
        if progress is not None:
            progress(status)
        return status

    def _computed(self, state: str) -> Status:
        """Compute the status, with the states of the couriers and notes for the user."""
        status = status_of(self._state, self.info, self.run_folder, state)
        status.found = msgspec.structs.replace(self._live.found(), ended_run=self._alerts.stopped_by)
        for courier in self._delivery:
            if courier.state != "ok":
                if (backend := status.backends.get(courier.name)) is not None:
                    backend.state, backend.error = courier.state, courier.error
                status.error = status.error or courier.error
        self._pace.look(status)
        status.notes += [*self._delivery.notes(), *filter(None, [self._unusable_choice])]
        status.notes += [*self._listening.notes(), *self._live.notes, *self._alerts.notes]
        return status

    def close(self) -> None:
        """Commit parcels on the way and release everything."""
        self._title.close()
        self._delivery.close()
        self._listening.close()
        self._state.close()


def ship(
    run_folder: Path,
    *,
    once: bool,
    everything: bool = False,
    progress: Callable[[Status], None] | None = None,
) -> Status:
    """Run the shipper of ``run_folder`` in this process. ``once``: deliver the rest and return; otherwise follow until
    the run is over. ``everything``: include traces that the keep-rules left in the spool.

    If another shipper of this run is at work, returns its status. Raises ``OSError``, ``msgspec.DecodeError`` or
    ``sqlite3.Error`` if the folder cannot be used.
    """
    with ShipperLock(run_folder) as lock:
        if not lock.held:
            try:
                return Status.read(run_folder)
            except FileNotFoundError:
                raise OSError("another process has just begun to deliver this run; try again") from None
        shipper = Shipper(run_folder, once=once, everything=everything)
        try:
            if once:
                return shipper.deliver_all(progress)
            shipper.follow()
            return Status.read(run_folder)
        finally:
            shipper.close()
