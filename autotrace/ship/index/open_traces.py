"""Track a trace that may still grow: open calls, and whether the trace is complete.

The end of the root ends a trajectory. Running calls below the root are then waited for, but not for long; later records
make a new version of the same trace. In the root's process a call that begins after the end is a trace of its own. Late
calls of other processes are bounded: in number, and in how often late calls make a new version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from autotrace.ship.store.row import TraceRow
from autotrace.spool.records import Close, Open, Record
from autotrace.trajectory.model import ANOTHERS

GRACE = 0.5
"""Seconds of silence before a closed trace counts as complete: processes write every 0.2 s, the engine's side of a call
and the reward may arrive a little after the root's end."""
ROOT_GRACE = 5.0
"""Seconds after the root's end after which a trace is delivered although calls below the root still run."""
CLOCKS_NS = 250_000_000
"""Nanoseconds by which the clocks of two nodes may differ: a call of another node than the root's that seems to begin
so little after the root's end is not late."""
MAX_LATE_CALLS = 1000
"""Maximum late calls that still belong to a trace. Beyond the limit nothing more is read of the trace; beginning calls
are counted."""
LATE_CALLS_PER_GRACE = 10
"""Number of late calls after which a trace waits for ``GRACE`` longer: the whole trace is sent again each time."""


PART_PATIENCE = 3600.0
"""Seconds for which a call that is part of a trajectory waits until that trajectory's id is read: a long rollout may
learn its id at its end."""


ALONE = ("span", "tool", "llm", "agent")
"""Roles of roots to which nothing is joined, and which are in no group."""


@lru_cache(maxsize=4096)
def _host(process: str) -> str:
    """Return the host in ``HOST-PID-RANDOM``."""
    return process.rsplit("-", 2)[0]


@dataclass(slots=True, eq=False)
class OpenTrace:
    """Hold the part of a trace that must be in memory: a few hundred bytes."""

    row: TraceRow
    open: dict[int, str] = field(default_factory=dict)
    """Open spans and the process that writes each span."""
    inside: dict[int, frozenset[str]] | None = None
    """Open spans that are, or are below, a call of an LLM, a tool, an environment or a reward, with the roles from that
    call down; None before the first such call. (A dict takes 200 bytes, and most traces of a program that is recorded
    whole are a single call.)"""
    root: int | None = None
    """Root span while open."""
    root_host: str | None = None
    """Node of the root's process, if this shipper read the root."""
    opened_at: float = field(default_factory=time.monotonic)
    touched: float = field(default_factory=time.monotonic)
    """Time of the last read record of the trace."""
    root_ended_at: float | None = None
    """Time when the root's end was read (for a delivered trace: when more records came)."""
    root_end_ns: int | None = None
    """Wall-clock time of the root's end."""
    dirty: bool = True
    is_part: bool = False
    """Whether the trace belongs to another trajectory, whose id was not read yet."""
    unread: bool = False
    """Whether earlier records of the trace could not be read."""
    stored: bool = False
    """Whether ``row`` is in the state except for its counts (``State.put_counts``)."""

    def __post_init__(self) -> None:
        if self.row.status != "OPEN" and self.row.root_read:  # else the trace was delivered without its root
            self.root_ended_at, self.root_end_ns = self.opened_at, self.row.end_ns

    def touch(self) -> float:
        """Mark a read record; return the time."""
        self.touched = now = time.monotonic()
        self.dirty = True
        return now

    @property
    def waits_for(self) -> str | None:
        """Return the process whose end alone can complete the trace, until more is read; None: another event can
        complete the trace, or the trace belongs to a group."""
        row = self.row
        if row.uid is not None or row.step is not None or row.version or row.role not in ALONE or self.is_part:
            return None
        if not self.stored or len(self.open) != 1 or self.root is None:
            return None
        return self.open.get(self.root)

    def _is_late(self, at_ns: int) -> bool:
        """Return whether a time is after the root's end, by the clock: segments of processes are read in any order."""
        return self.root_end_ns is not None and at_ns > self.root_end_ns

    def opened(self, span: int, parent: int, process: str, role: str, at_ns: int) -> None:
        """Count a call that began."""
        self.open[span] = process
        host = _host(process)
        if not parent:
            self.root_host = host
        if self._is_late(at_ns if self.root_host == host else at_ns - CLOCKS_NS):
            self.row.late_spans += 1
        self.row.spans += 1
        self._count(span, parent, role)

    def _count(self, span: int, parent: int, role: str) -> None:
        """Count turns and tool calls as ``own_calls`` does, by the calls that are open now."""
        inside = self.inside or {}
        around = inside.get(parent, frozenset())
        if role == "llm":
            self.row.turns += around.isdisjoint(ANOTHERS[role])
        elif role == "tool":
            self.row.tool_calls += around.isdisjoint(ANOTHERS[role])
        if around or role in ANOTHERS["llm"]:
            inside[span] = around | {role}
            self.inside = inside

    def closed(self, span: int, at_ns: int) -> None:
        """Close a call that ended."""
        self.open.pop(span, None)
        if self.inside:
            self.inside.pop(span, None)
        if span == self.root:
            self.root_ended_at, self.root_end_ns = time.monotonic(), at_ns

    def replay(self, process: str, records: Iterable[Record], shift: int) -> None:
        """Take records that were counted already (the shipper was restarted). ``shift``: nanoseconds from the clock of
        ``process`` to the wall clock."""
        ended = []
        for record in records:
            if isinstance(record, Open):
                self.open[record.span] = process
                if not record.parent:
                    self.root, self.root_host = record.span, _host(process)
            elif isinstance(record, Close):
                ended.append((record.span, record.at + shift))
        for span, at_ns in ended:
            self.closed(span, at_ns)

    def verdict(self, now: float, ended: Callable[[str], bool], over: bool) -> str | None:
        """Return ``complete``, ``final`` (complete, because the trace waits no longer), or None: more records will
        come."""
        grace = GRACE * (1 + self.row.late_spans / LATE_CALLS_PER_GRACE)
        silent = over or now - self.touched > grace
        if self.is_part and not over and now - self.opened_at < PART_PATIENCE:
            return None
        running = any(not ended(process) for process in self.open.values())
        if silent and self.row.name and not running:
            return "complete"
        if over:
            return "final"
        if self.root_ended_at is None or not self.row.name:
            return None
        return "final" if now - self.root_ended_at > max(ROOT_GRACE, grace) else None
