"""Pack a backend's next parcel: load, decode, and stay within the backend's budget.

The byte budget of a training step decides for a whole group (the rollouts of one prompt in one step) once the group has
ended, from the exact bytes to send. Only rollouts that join a group later exceed the budget. Undelivered groups stay in
the run folder; ``autotrace ship --all`` delivers such groups later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.store.delivery_queue import TABLES, DeliveryQueue
from autotrace.ship.store.state import State
from autotrace.sinks.protocol import Sink
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")

LeftOut = list[tuple[str, int, str]]
"""List trace id, version, and why the trajectory cannot be sent."""
OVER_BUDGET = "over the byte budget; it stays in the run folder, autotrace ship --all delivers it"
"""Mark a trajectory as left out, in the state."""
MAX_BYTES = 32 << 20
"""Limit the memory (about, in bytes) of the trajectories that a sink gets in a call. Two such parcels may be on the
way."""
KNOWN_BYTES = 4 << 10
"""Estimate the memory of a trajectory without calls, in bytes."""
SHARED_BYTES = 48 << 20
"""Limit the memory for trajectories that some destinations have got and others will get, in bytes."""
PATIENCE = 3.0
"""Let the tables wait so many seconds for backends before another parcel, so that each trajectory is assembled once.
Less than ``recent.SOON``, for which records of waiting trajectories are kept."""


@dataclass
class Parcel:
    """Hold the contents of one call of a sink."""

    trajectories: list[Trajectory]
    versions: dict[str, int]
    known: list[Trajectory] = field(default_factory=list)
    """List already delivered trajectories: only new facts are sent."""
    bytes: int = 0

    def add(self, trajectory: Trajectory, version: int, size: int, is_whole: bool = True) -> None:
        """Add a trajectory that takes ``size`` bytes of memory."""
        (self.trajectories if is_whole else self.known).append(trajectory)
        self.versions[trajectory.trace_id] = version
        self.bytes += size


@dataclass
class _Shared:
    trajectory: Trajectory
    size: int
    had: set[str]
    """List the destinations that have got the trajectory."""


class Packer:
    """Build the parcels of a run. Belongs to the thread of ``state``."""

    def __init__(self, state: State, loader: Loader, decoder: Decoder, step_budget: int | None = None) -> None:
        """Set up the packer. ``step_budget``: bytes of a training step that a backend may get."""
        self._state = state
        self._queue = DeliveryQueue(state)
        self._loader = loader
        self._decoder = decoder
        self._step_budget = step_budget
        self.destinations = 1
        """Count the destinations of each trajectory, which is assembled and decoded once for all destinations."""
        self._shared: dict[tuple[str, int], _Shared] = {}
        self._bytes = 0
        self._tables_at = 0.0
        """Store when a trajectory was last assembled for the tables."""
        self._in_touch = True
        """Store whether backends found everything that backends asked for since a trajectory was dropped."""

    def limits(self, sink: Sink) -> bool:
        """Return whether ``sink`` has a budget."""
        return self._step_budget is not None and sink.name != TABLES

    def parcel(self, sink: Sink, wanted: Sequence[tuple[str, int]]) -> tuple[Parcel | None, LeftOut]:
        """Return the first trajectories of ``wanted`` (trace ids and versions) as a parcel, None if none can be sent
        now, and the trajectories that are never sent."""
        parcel, left_out = Parcel([], {}), LeftOut()
        self._loader.refresh()
        for trace_id, version in wanted:
            whole = self._queue.is_whole(sink.name, trace_id)
            try:
                known = None if whole or getattr(sink, "needs_calls", True) else self._loader.known(trace_id)
                loaded = self._once(sink.name, trace_id, version) if known is None else (known, KNOWN_BYTES)
                affordable = loaded is None or not whole or self._affordable(sink, loaded[0])
            except OSError as error:  # the file system fails: nothing is acknowledged, so the trace is tried again
                _log.warning("cannot read the segments of trace %s: %s", trace_id, error)
                break
            if loaded is None:
                left_out.append((trace_id, version, "its segments are gone from the run folder"))
            elif not affordable:
                left_out.append((trace_id, version, OVER_BUDGET))
            else:
                parcel.add(loaded[0], version, loaded[1], whole)
                if parcel.bytes >= MAX_BYTES:
                    break
        return (parcel if parcel.versions else None), left_out

    @property
    def ahead(self) -> bool:
        """Return whether backends have yet to ask for so many trajectories of the tables that no more fit into memory.
        False after ``PATIENCE``, and while backends ask for trajectories that were dropped."""
        much = sum(one.size for one in self._shared.values() if TABLES in one.had) > SHARED_BYTES - MAX_BYTES
        return much and self._in_touch and time.monotonic() < self._tables_at + PATIENCE

    def _once(self, name: str, trace_id: str, version: int) -> tuple[Trajectory, int] | None:
        """Return ``_loaded``, or the copy that another destination had a moment ago."""
        key = trace_id, version
        known = self._shared.get(key)
        if known is not None:
            known.had.add(name)
            self._in_touch = self._in_touch or name != TABLES
            if len(known.had) == self.destinations:
                self._forget(key)
            return known.trajectory, known.size
        loaded = self._loaded(trace_id)
        if name == TABLES:
            self._tables_at = time.monotonic()
        if loaded is not None and self.destinations > 1:
            self._shared[key] = _Shared(*loaded, {name})
            self._bytes += loaded[1]
            while self._bytes > SHARED_BYTES:
                self._forget(next(iter(self._shared)))
                self._in_touch = False
        return loaded

    def _forget(self, key: tuple[str, int]) -> None:
        self._bytes -= self._shared.pop(key).size

    def _loaded(self, trace_id: str) -> tuple[Trajectory, int] | None:
        """Load the trajectory with decoded text; return it with its size in memory (bytes)."""
        loaded = self._loader.load_sized(trace_id)
        if loaded is not None:
            self._decoder.add_texts(loaded[0])
        return loaded

    def _affordable(self, sink: Sink, trajectory: Trajectory) -> bool:
        """Return whether the budget admits the trajectory. The first of a group decides for the whole group. A
        trajectory that is sent again is not counted again."""
        if not self.limits(sink):
            return True
        own = trajectory.trace_id
        row = self._state.row(own)
        group, step = (own, None) if row is None else (row.group, row.step)
        sql = "SELECT trace_id, bytes FROM admitted WHERE backend = ? AND group_key = ?"
        decided: dict[str, int | None] = dict(self._state.db.execute(sql, (sink.name, group)).fetchall())
        if own in decided:
            return decided[own] is not None
        undecided = {id: size for id, size in self._sizes(sink, trajectory, group).items() if id not in decided}
        if decided:
            admitted = any(size is not None for size in decided.values())
        else:
            admitted = self._fits(sink, step, sum(undecided.values()))
        self._state.db.executemany(
            "INSERT OR REPLACE INTO admitted VALUES (?, ?, ?, ?, ?)",
            ((sink.name, id, group, step, size if admitted else None) for id, size in undecided.items()),
        )
        return admitted

    def _fits(self, sink: Sink, step: int | None, size: int) -> bool:
        sql = "SELECT sum(bytes) FROM admitted WHERE backend = ? AND step IS ?"
        return self._state.count(sql, (sink.name, step)) + size <= (self._step_budget or 0)

    def _sizes(self, sink: Sink, trajectory: Trajectory, group: str) -> Mapping[str, int]:
        """Map trace id -> bytes that ``sink`` would send, for ``trajectory`` and the rest of its group."""
        own = trajectory.trace_id
        sizes = {own: sink.size(trajectory)}
        for other in self._state.group(group):
            loaded = self._loaded(other.trace_id) if other.complete and other.trace_id != own else None
            if loaded is not None:
                sizes[other.trace_id] = sink.size(loaded[0])
        return sizes
