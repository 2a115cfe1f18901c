"""How trajectories get to a sink: by a thread of its own.

The state is written by another thread, and only after the sink returned: a kill in between means that the same
trajectories are sent once more, which replaces them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from autotrace.ship.delivery.packing import LeftOut, Packer, Parcel
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

Wanted = Sequence[tuple[str, int]]
"""Trace ids and versions that are to be delivered."""
Binds = Sequence[tuple[str, Mapping[str, Any]]]
"""What was reported about the run, by name."""


class DeliveryProblem(msgspec.Struct):
    """Why nothing of a parcel counts as delivered."""

    state: str
    """``waiting`` (may pass) or ``blocked`` (a person must act)."""
    text: str
    retry_after: float | None = None
    """Seconds, if the backend named a time."""


class ParcelReceipt(msgspec.Struct):
    """What came of a parcel."""

    delivered: list[tuple[str, int, str | None]] = []
    """Trace id, version, page."""
    rejected: list[tuple[str, int, str]] = []
    """By the backend: trace id, version, reason."""
    left_out: LeftOut = []
    """Not sent."""
    sent: int = 0
    """Bytes that the backend took."""
    problem: DeliveryProblem | None = None
    given: int = 0
    """Trajectories that the sink was given: as many of the first as fit into a parcel."""

    @property
    def moved(self) -> bool:
        """Something left the queue."""
        return bool(self.delivered or self.rejected or self.left_out)


class Carrier:
    """Takes trajectories to one backend: loads them in the calling thread and delivers them in one of its own.

    The next parcel is loaded while the backend is at the one before. If that fails, the next is handed back untried.
    """

    def __init__(self, sink: Sink, packer: Packer, from_tables: bool = False) -> None:
        """``from_tables``: as in ``Backend``; all that is wanted is in the tables, and nothing is loaded."""
        self._sink = sink
        self._packer = packer
        self._from_tables = from_tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"deliver-{sink.name}")
        self._binds: list[tuple[str, Mapping[str, Any]]] = []
        self._failures = 0

    @property
    def capacity(self) -> int:
        """Parcels that may be on their way at the same time. A budget asks the sink for sizes, and a sink is asked by
        one thread at a time."""
        return 1 if self._from_tables or self._packer.limits(self._sink) else 2

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        """Hand something about the run to the sink before the next delivery."""
        self._binds.append((name, value))

    def send(self, wanted: Wanted) -> Future[ParcelReceipt]:
        """Load ``wanted``, or as many of the first as fit into a parcel, and deliver them in the background."""
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
                reasons |= error.reasons
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
        """Let go of the sink. ``idle``: nothing is on its way; else the sink is left alone."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if idle:
            self._told(self._binds)
            self._sink.close()


def _problem(name: str, error: Exception) -> DeliveryProblem:
    if isinstance(error, Unavailable):
        return DeliveryProblem("waiting", str(error), error.retry_after)
    if isinstance(error, Refused):
        return DeliveryProblem("blocked", str(error))
    # a bug here or in the backend's library: nothing is lost, it is tried again
    _log.error("delivery to %s failed", name, exc_info=error)
    return DeliveryProblem("waiting", f"{name}: {type(error).__name__}: {error}"[:500])
