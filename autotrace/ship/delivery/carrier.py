"""Send trajectories to a sink, in a thread of the sink's own.

Another thread writes the state, only after the sink returned. After a kill in between, the same trajectories are sent
again and replace the first copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from autotrace.ship.delivery.packing import LeftOut, Packer, Parcel
from autotrace.sinks.own_keys import without_own_keys
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

Wanted = Sequence[tuple[str, int]]
"""List trace ids and versions to deliver."""
Binds = Sequence[tuple[str, Mapping[str, Any]]]
"""List the reports about the run, by name."""


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


class Carrier:
    """Deliver trajectories to one backend: load in the calling thread, send in a thread of the carrier's own.

    The next parcel is loaded while the backend takes the parcel before. If that parcel fails, the next parcel is handed
    back untried.
    """

    def __init__(self, sink: Sink, packer: Packer, from_tables: bool = False) -> None:
        """Set up the carrier. ``from_tables``: as in ``Backend``; the tables have every wanted trajectory, so nothing
        is loaded."""
        self._sink = sink
        self._packer = packer
        self._from_tables = from_tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"deliver-{sink.name}")
        self._binds: list[tuple[str, Mapping[str, Any]]] = []
        self._failures = 0

    @property
    def capacity(self) -> int:
        """Count the parcels that may be on the way at the same time. A budget asks the sink for sizes, and only one
        thread at a time may ask a sink."""
        return 1 if self._from_tables or self._packer.limits(self._sink) else 2

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Pass a report about the run to the sink before the next delivery."""
        self._binds.append((name, value))

    def send(self, wanted: Wanted) -> Future[ParcelReceipt]:
        """Load the first trajectories of ``wanted``, as many as fit into a parcel, and deliver the parcel in the
        background."""
        left_out = LeftOut()
        parcel: Parcel | None = Parcel([], dict(wanted))
        if not self._from_tables:
            parcel, left_out = self._packer.parcel(self._sink, wanted)
        if parcel is None:
            nothing: Future[ParcelReceipt] = Future()
            nothing.set_result(ParcelReceipt(left_out=left_out))
            return nothing
        binds, self._binds = self._binds, []
        return self._thread.submit(self._delivered, parcel, left_out, binds, self._failures)

    def _delivered(self, parcel: Parcel, left_out: LeftOut, binds: Binds, failures: int) -> ParcelReceipt:
        self._told(binds)
        receipt = ParcelReceipt(left_out=left_out)
        if failures != self._failures:
            return receipt
        reasons: dict[str, str] = {}
        before = self._sink.sent
        receipt.given = len(parcel.versions)
        sends = [(self._sink.deliver, parcel.trajectories)] if parcel.trajectories or self._from_tables else []
        if parcel.known:  # a backend of another package may have no such method
            sends.append((getattr(self._sink, "facts", self._sink.deliver), parcel.known))
        for send, trajectories in sends:
            try:
                send(trajectories)
            except Rejected as error:
                reasons |= {trace_id: without_own_keys(reason) for trace_id, reason in error.reasons.items()}
            except Exception as error:
                receipt.problem = _problem(self._sink.name, error)
                self._failures += 1
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

    def tell(self, name: str, *arguments: Any) -> Future[None]:
        """Call the sink's method ``name`` in the background; a sink of another package may have no such method."""
        binds, self._binds = self._binds, []
        return self._thread.submit(self._called, binds, getattr(self._sink, name, None), arguments)

    def _called(self, binds: Binds, method: Callable[..., None] | None, arguments: Sequence[Any]) -> None:
        self._told(binds)
        if method is not None:
            method(*arguments)

    def _told(self, binds: Binds) -> None:
        for name, value in binds:
            try:
                self._sink.bind(name, value)
            except Exception:
                _log.exception("%s did not take the report %s", self._sink.name, name)

    def _page(self, trajectory: Trajectory) -> str | None:
        try:
            return self._sink.page(trajectory)
        except Exception:
            return None

    def close(self, idle: bool) -> None:
        """Release the sink. ``idle``: no parcel is on the way; otherwise the sink stays open."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if idle:
            self._told(self._binds)
            self._sink.close()


def _problem(name: str, error: Exception) -> DeliveryProblem:
    text = without_own_keys(str(error))  # an answer may quote our key, an error of a library an address
    if isinstance(error, Unavailable):
        return DeliveryProblem("waiting", text, error.retry_after)
    if isinstance(error, Refused):
        return DeliveryProblem("blocked", text)
    # a bug here or in the backend's library: nothing is lost, the parcel is tried again
    _log.error("delivery to %s failed", name, exc_info=error)
    return DeliveryProblem("waiting", f"{name}: {type(error).__name__}: {text}"[:500])
