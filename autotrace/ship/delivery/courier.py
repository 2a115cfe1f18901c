"""Deliver to one backend: decide how much to send at once, send in a thread of the backend's own, and decide how long
to wait after a failure.

The calling thread alone writes the state, only after the sink returned. After a kill in between, the same trajectories
are sent again and replace the first copies.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import msgspec

from autotrace.ship.delivery.packing import LeftOut, Packer, Parcel
from autotrace.ship.store.delivery_queue import DeliveryQueue
from autotrace.sinks.own_keys import without_own_keys
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

Wanted = Sequence[tuple[str, int]]
"""List trace ids and versions to deliver."""
Binds = Sequence[tuple[str, Mapping[str, Any]]]
"""List the reports about the run, by name."""
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
REFUSED_DELAY = 15.0
"""Wait so many seconds between two tries when a person must act first."""
FIRST_BATCH, MAX_BATCH = 50, 1_000
"""Set the trajectories of a parcel, if so many fit. The next parcel takes from the queue a quarter more than the latest
parcel held. Trajectories that do not fit return to the queue."""
GATHERED_BATCH = 200
"""Replace ``FIRST_BATCH`` for a destination with a fixed cost per delivery."""
TRIES = 4
"""Give up a backend in the foreground after so many failed tries in a row."""


class DeliveryProblem(msgspec.Struct):
    """Describe why no trajectory of a parcel counts as delivered."""

    state: str
    """Name the state: ``waiting`` (may pass) or ``blocked`` (a person must act)."""
    text: str
    retry_after: float | None = None
    """Wait so many seconds, if the backend named a time."""


class ParcelReceipt(msgspec.Struct):
    """Describe the outcome of a parcel."""

    delivered: list[tuple[str, int, str | None]] = []
    """List trace id, version and page."""
    rejected: list[tuple[str, int, str]] = []
    """List what the backend rejected: trace id, version, reason."""
    left_out: LeftOut = []
    """List what was not sent."""
    sent: int = 0
    """Count the bytes that the backend took."""
    problem: DeliveryProblem | None = None
    given: int = 0
    """Count the trajectories that the sink was given: the first ones, as many as fit into a parcel."""

    @property
    def moved(self) -> bool:
        """Return whether something left the queue."""
        return bool(self.delivered or self.rejected or self.left_out)


class Courier:
    """Deliver the trajectories that are queued for backend ``name``: load in the calling thread, send in a thread of
    the courier's own.

    The next parcel is loaded while the backend takes the parcel before. If that parcel fails, the next parcel is handed
    back untried.
    """

    def __init__(self, name: str, sink: Sink, packer: Packer, *, gather: float = 0.0, after: str = "") -> None:
        """Set up the courier. ``gather``: seconds for which a few trajectories wait for others while more are to come.
        ``after``: as in ``DeliveryQueue.next``; the sink then reads what the other destination has, and nothing is
        loaded."""
        self.name = name
        self.after = after
        self.state = "ok"
        """Name the state: ok | waiting | blocked."""
        self.error: str | None = None
        self.failures = 0
        """Count the failures in a row."""
        self.batch = GATHERED_BATCH if gather else FIRST_BATCH
        self._sink = sink
        self._packer = packer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"deliver-{name}")
        self._binds: list[tuple[str, Mapping[str, Any]]] = []
        self._failed_parcels = 0
        """Count the failures, in the courier's thread."""
        self._not_before = 0.0
        self._gather = gather
        self._gathers_since: float | None = None
        self._running: deque[tuple[Wanted, Future[ParcelReceipt]]] = deque()
        self._telling: Future[None] | None = None

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Pass a report about the run to the sink before the next delivery."""
        self._binds.append((name, value))
        self._not_before = 0.0

    @property
    def busy(self) -> bool:
        """Return whether a parcel is on the way."""
        return bool(self._running)

    @property
    def gave_up(self) -> bool:
        """Return whether the backend is given up (in the foreground)."""
        return not self.busy and (self.state == "blocked" or self.failures >= TRIES)

    def ready(self) -> bool:
        """Return whether a parcel may be sent now. A budget asks the sink for sizes, and only one thread at a time may
        ask a sink."""
        most = 1 if self.after or self._packer.limits(self._sink) else 2
        under_way = len(self._running) + (self._telling is not None and not self._telling.done())
        return under_way < most and time.monotonic() >= self._not_before

    def next(self, queue: DeliveryQueue, coming: bool) -> Wanted:
        """Return the trajectories to send now. ``coming``: more will follow, so a few trajectories may wait."""
        under_way = {trace_id for wanted, _ in self._running for trace_id, _ in wanted}
        found = queue.next(self.name, self.batch, under_way, self.after)
        return () if coming and self._gather and self.waits(len(found)) else found

    def waits(self, count: int) -> bool:
        """Return whether ``count`` trajectories are too few for a parcel and have not waited long."""
        if not count or count >= self.batch * 3 // 4:
            self._gathers_since = None
            return False
        now = time.monotonic()
        self._gathers_since = self._gathers_since or now
        return now < self._gathers_since + self._gather

    def send(self, wanted: Wanted) -> None:
        """Load the first trajectories of ``wanted``, as many as fit into a parcel, and deliver the parcel in the
        background; ``receipt`` returns the outcome."""
        self._gathers_since = None
        parcel: Parcel | None = Parcel([], dict(wanted))
        left_out = LeftOut()
        if not self.after:
            parcel, left_out = self._packer.parcel(self._sink, wanted)
        future: Future[ParcelReceipt] = Future()
        if parcel is None:
            future.set_result(ParcelReceipt(left_out=left_out))
        else:
            future = self._thread.submit(self._delivered, parcel, left_out, self._taken_binds(), self._failed_parcels)
        self._running.append((wanted, future))

    def tell(self, name: str, *arguments: Any) -> Future[None]:
        """Call the sink's method ``name`` in the background; a sink of another package may have no such method."""
        method = getattr(self._sink, name, None)
        self._telling = self._thread.submit(self._told, self._taken_binds(), method, arguments)
        return self._telling

    def _taken_binds(self) -> Binds:
        binds, self._binds = self._binds, []
        return binds

    def receipt(self) -> ParcelReceipt | None:
        """Return the outcome of a parcel, once; None while all parcels are on the way. A parcel without an outcome is
        tried again."""
        if not self._running or not self._running[0][1].done():
            return None
        wanted, future = self._running.popleft()
        receipt = future.result()
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

    def _failed(self, problem: DeliveryProblem, given: int) -> None:
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

    def close(self, seconds: float) -> list[ParcelReceipt]:
        """Wait at most ``seconds`` for everything on the way, then release the sink, unless the sink is still at
        work."""
        under_way: list[Future[Any]] = [future for _, future in self._running]
        if self._telling is not None:
            under_way.append(self._telling)
        is_idle = not wait(under_way, seconds).not_done
        receipts = list(iter(self.receipt, None))
        self._thread.shutdown(wait=False, cancel_futures=True)
        if is_idle:
            self._told(self._binds)
            self._sink.close()
        return receipts

    # -- in the courier's thread ---------------------------------------------------------------------------------------

    def _delivered(self, parcel: Parcel, left_out: LeftOut, binds: Binds, failures: int) -> ParcelReceipt:
        self._told(binds)
        receipt = ParcelReceipt(left_out=left_out)
        if failures != self._failed_parcels:
            return receipt
        reasons: dict[str, str] = {}
        before = self._sink.sent
        receipt.given = len(parcel.versions)
        sends = [(self._sink.deliver, parcel.trajectories)] if parcel.trajectories or self.after else []
        if parcel.known:  # a backend of another package may have no such method
            sends.append((getattr(self._sink, "facts", self._sink.deliver), parcel.known))
        for send, trajectories in sends:
            try:
                send(trajectories)
            except Rejected as error:
                reasons |= {trace_id: without_own_keys(reason) for trace_id, reason in error.reasons.items()}
            except Exception as error:
                receipt.problem = _problem(self.name, error)
                self._failed_parcels += 1
                break
        receipt.sent = self._sink.sent - before
        if receipt.problem is not None:
            return receipt
        pages = {one.trace_id: self._page(one) for one in parcel.trajectories if one.trace_id not in reasons}
        for trace_id, version in parcel.versions.items():
            if trace_id in reasons:
                receipt.rejected.append((trace_id, version, reasons[trace_id]))
            else:
                receipt.delivered.append((trace_id, version, pages.get(trace_id)))
        return receipt

    def _told(self, binds: Binds, method: Callable[..., None] | None = None, arguments: Sequence[Any] = ()) -> None:
        for name, value in binds:
            try:
                self._sink.bind(name, value)
            except Exception:
                _log.exception("%s did not take the report %s", self.name, name)
        if method is not None:
            method(*arguments)

    def _page(self, trajectory: Trajectory) -> str | None:
        try:
            return self._sink.page(trajectory)
        except Exception:
            return None


def _problem(name: str, error: Exception) -> DeliveryProblem:
    text = without_own_keys(str(error))  # an answer may quote our key, an error of a library an address
    if isinstance(error, Unavailable):
        return DeliveryProblem("waiting", text, error.retry_after)
    if isinstance(error, Refused):
        return DeliveryProblem("blocked", text)
    # a bug here or in the backend's library: nothing is lost, the parcel is tried again
    _log.error("delivery to %s failed", name, exc_info=error)
    return DeliveryProblem("waiting", f"{name}: {type(error).__name__}: {text}"[:500])
