"""What goes into a backend's next parcel: read from the spool, decoded, and within the backend's budget."""

from __future__ import annotations

import logging

from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.budgets import OVER_BUDGET
from autotrace.ship.delivery.courier import Courier, Parcel
from autotrace.ship.store.delivery_queue import DeliveryQueue
from autotrace.ship.store.state import State
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

LeftOut = list[tuple[str, int, str]]
"""Trace id, version, and why it cannot go."""


class Packer:
    """Makes parcels of one run. Belongs to the thread of ``state``."""

    def __init__(self, state: State, queue: DeliveryQueue, loader: Loader, decoder: Decoder) -> None:
        self._state = state
        self._queue = queue
        self._loader = loader
        self._decoder = decoder

    def parcel(self, courier: Courier) -> tuple[Parcel | None, LeftOut]:
        """The oldest of what waits for ``courier``, None when there is nothing, and what is not to be sent."""
        parcel, left_out = Parcel([], {}), LeftOut()
        for trace_id, version in self._queue.next(courier.sink.name, courier.batch):
            try:
                trajectory = self._loaded(trace_id)
                affordable = trajectory is None or self._affordable(courier, trajectory)
            except OSError as error:  # the file system fails: nothing is acknowledged, so it is tried again
                _log.warning("cannot read the segments of trace %s: %s", trace_id, error)
                break
            if trajectory is None:
                left_out.append((trace_id, version, "its segments are gone from the run folder"))
            elif not affordable:
                left_out.append((trace_id, version, OVER_BUDGET))
            else:
                parcel.add(trajectory, version)
                if parcel.full:
                    break
        return (parcel if parcel.trajectories else None), left_out

    def _loaded(self, trace_id: str) -> Trajectory | None:
        trajectory = self._loader.load(trace_id, final=True)
        if trajectory is not None:
            self._decoder.add_texts(trajectory)
        return trajectory

    def _affordable(self, courier: Courier, trajectory: Trajectory) -> bool:
        if not courier.ledger.limited:
            return True
        own = trajectory.trace_id
        row = self._state.row(own)
        group = own if row is None else row.group

        def sizes() -> dict[str, int]:
            by_trace = {own: courier.sink.size(trajectory)}
            for other in self._state.group(group):
                loaded = self._loaded(other.trace_id) if other.complete and other.trace_id != own else None
                if loaded is not None:
                    by_trace[loaded.trace_id] = courier.sink.size(loaded)
            return by_trace

        return courier.ledger.admits(own, group, None if row is None else row.step, sizes)
