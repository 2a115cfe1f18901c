"""What goes into a backend's next parcel: loaded, decoded, and within the backend's budget."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery.admission import OVER_BUDGET, Ledger
from autotrace.ship.store.state import State
from autotrace.sinks.protocol import Sink
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

LeftOut = list[tuple[str, int, str]]
"""Trace id, version, and why it cannot go."""


MAX_BYTES = 32 << 20
"""The memory that the trajectories of one call of a sink take, about. Two such parcels may be on their way."""
SHARED_BYTES = 32 << 20
"""The memory for trajectories that one destination has got and the others will."""


@dataclass
class Parcel:
    """What one call of a sink gets."""

    trajectories: list[Trajectory]
    versions: dict[str, int]
    bytes: int = 0

    def add(self, trajectory: Trajectory, version: int, size: int) -> None:
        """Put one in, which takes ``size`` bytes of memory."""
        self.trajectories.append(trajectory)
        self.versions[trajectory.trace_id] = version
        self.bytes += size

    @property
    def full(self) -> bool:
        """No more should be added."""
        return self.bytes >= MAX_BYTES


@dataclass
class _Shared:
    trajectory: Trajectory
    size: int
    left: int
    """Destinations that will ask for it."""


class Packer:
    """Makes parcels of one run. Belongs to the thread of ``state``."""

    def __init__(self, state: State, loader: Loader, decoder: Decoder) -> None:
        self._state = state
        self._loader = loader
        self._decoder = decoder
        self.destinations = 1
        """How many ask for each trajectory: it is assembled and decoded once for all of them."""
        self._shared: dict[tuple[str, int], _Shared] = {}
        self._bytes = 0

    def parcel(self, sink: Sink, ledger: Ledger, wanted: Sequence[tuple[str, int]]) -> tuple[Parcel | None, LeftOut]:
        """The first of ``wanted`` (trace ids and versions), None when none of them can be sent, and what never is."""
        parcel, left_out = Parcel([], {}), LeftOut()
        self._loader.refresh()
        for trace_id, version in wanted:
            try:
                loaded = self._once(trace_id, version)
                affordable = loaded is None or self._affordable(sink, ledger, loaded[0])
            except OSError as error:  # the file system fails: nothing is acknowledged, so it is tried again
                _log.warning("cannot read the segments of trace %s: %s", trace_id, error)
                break
            if loaded is None:
                left_out.append((trace_id, version, "its segments are gone from the run folder"))
            elif not affordable:
                left_out.append((trace_id, version, OVER_BUDGET))
            else:
                trajectory, size = loaded
                parcel.add(trajectory, version, size)
                if parcel.full:
                    break
        return (parcel if parcel.trajectories else None), left_out

    def _once(self, trace_id: str, version: int) -> tuple[Trajectory, int] | None:
        """``_loaded``, unless another destination had it a moment ago."""
        key = trace_id, version
        known = self._shared.get(key)
        if known is not None:
            known.left -= 1
            if not known.left:
                self._forget(key)
            return known.trajectory, known.size
        loaded = self._loaded(trace_id)
        if loaded is not None and self.destinations > 1:
            self._shared[key] = _Shared(*loaded, self.destinations - 1)
            self._bytes += loaded[1]
            while self._bytes > SHARED_BYTES:
                self._forget(next(iter(self._shared)))
        return loaded

    def _forget(self, key: tuple[str, int]) -> None:
        self._bytes -= self._shared.pop(key).size

    def _loaded(self, trace_id: str) -> tuple[Trajectory, int] | None:
        """With its texts, and what it takes in memory."""
        loaded = self._loader.load_sized(trace_id)
        if loaded is not None:
            self._decoder.add_texts(loaded[0])
        return loaded

    def _affordable(self, sink: Sink, ledger: Ledger, trajectory: Trajectory) -> bool:
        if not ledger.limited:
            return True
        own = trajectory.trace_id
        row = self._state.row(own)
        group = own if row is None else row.group

        def sizes() -> dict[str, int]:
            by_trace = {own: sink.size(trajectory)}
            for other in self._state.group(group):
                loaded = self._loaded(other.trace_id) if other.complete and other.trace_id != own else None
                if loaded is not None:
                    by_trace[other.trace_id] = sink.size(loaded[0])
            return by_trace

        return ledger.admits(own, group, None if row is None else row.step, sizes)
