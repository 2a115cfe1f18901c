"""Join requests that lost their context to the calling LLM call by the id of the request.

The call reports the id of its request (``statements.requests``); the engine's side, which sees no caller, begins a
trace of its own and names the received id. The two ids are equal except for suffixes of engines and routers. The first
side that is read waits for the other, as long as the engine's trace is not complete. Calls that name their trajectory
(``records.OF``) are joined in the same way, by exactly that id; the calls wait until the id is known.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from autotrace.ship.index.open_traces import OpenTrace
from autotrace.ship.store.state import State
from autotrace.spool.records import OF, Fact, Open

_APPENDED = re.compile(r"(_[PD]|-[0-9a-f]{8})\Z")
"""Suffix of an id: ``_P``/``_D`` of disaggregated prefill and decode, eight digits of vLLM's engine core."""
MAX_WAITING = 65_536
"""Maximum waiting orphans; beyond the limit the oldest is forgotten."""


@dataclass(frozen=True)
class Join:
    """Describe where an orphan's root belongs."""

    trace_id: str
    span: int


def wanted(attributes: Mapping[str, Any], role: str) -> tuple[str, ...]:
    """Return the ids by which a trace with such a root is joined; empty for an independent trace."""
    trajectory = attributes.get(OF)
    if isinstance(trajectory, str) and trajectory:
        return (trajectory[:1000],)
    return tuple(names(attributes.get("request_id"))) if role == "engine" else ()


def names(request_id: Any) -> Iterator[str]:
    """Yield the names that a request may have on the other side."""
    if not isinstance(request_id, str) or not request_id:
        return
    yield request_id[:1000]
    shorter = _APPENDED.sub("", request_id[:1000])
    if shorter and shorter != request_id:
        yield shorter


class Joins:
    """Hold the joins of a run."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._joined: dict[str, Join] = {
            row["orphan"]: Join(row["trace_id"], row["span"]) for row in state.db.execute("SELECT * FROM joins")
        }
        self._waiting: dict[str, dict[str, None]] = {}
        """Request id -> orphans."""

    def of(self, trace_id: str) -> Join | None:
        """Return the position of the records of ``trace_id``, for a joined orphan."""
        return self._joined.get(trace_id)

    def attached(self, record: Any) -> Any:
        """Return ``record``; set the parent of an orphan's root."""
        if isinstance(record, Open) and record.parent == 0 and record.trace.hex() in self._joined:
            return msgspec.structs.replace(record, parent=self._joined[record.trace.hex()].span)
        return record

    def wait(self, trace_id: str, names: Iterable[str]) -> None:
        """Wait for a request with any of ``names``; ``trace_id`` may be its other side."""
        for name in names:
            self._waiting.setdefault(name, {})[trace_id] = None
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def root(self, trace_id: str, record: Open, role: str) -> Join | None:
        """Return the join of a new trace with a request that was read before; else let the trace wait for the
        request."""
        searched = wanted(record.attributes or {}, role)
        for name in searched:
            row = self._state.db.execute("SELECT trace_id, span FROM requests WHERE request = ?", (name,)).fetchone()
            if row is not None and row["trace_id"] != trace_id:
                return self._join(trace_id, Join(row["trace_id"], row["span"]))
        self.wait(trace_id, searched)
        return None

    def request(self, fact: Fact) -> list[tuple[str, Join]]:
        """Store the id that a call reported for its request or trajectory; return the waiting orphans, with their
        join."""
        key = fact.key or {}
        name, span = key.get("request"), key.get("span")
        if not isinstance(name, str) or not isinstance(span, int) or len(fact.trace) != 16:
            return []
        join = Join(fact.trace.hex(), _signed(span))
        self._state.db.execute(
            "INSERT OR REPLACE INTO requests VALUES (?, ?, ?)", (name[:1000], join.trace_id, join.span)
        )
        orphans = self._waiting.pop(name, {})
        return [
            (orphan, self._join(orphan, join))
            for orphan in orphans
            if orphan != join.trace_id and orphan not in self._joined
        ]

    def _join(self, orphan: str, join: Join) -> Join:
        self._joined[orphan] = join
        self._state.db.execute("INSERT OR REPLACE INTO joins VALUES (?, ?, ?)", (orphan, join.trace_id, join.span))
        return join

    def forget(self, orphan: str) -> None:
        """Drop ``orphan``, which can no longer be joined."""
        del self._joined[orphan]
        self._state.db.execute("DELETE FROM joins WHERE orphan = ?", (orphan,))

    def move(
        self, orphan: str, join: Join, traces: Mapping[str, OpenTrace], offsets: dict[tuple[str, int], array[int]]
    ) -> None:
        """Move the records of ``orphan`` that were already read to the other trace."""
        for trace_id, segment in [key for key in offsets if key[0] == orphan]:
            offsets.setdefault((join.trace_id, segment), array("q")).extend(offsets.pop((trace_id, segment)))
        for table in ("places", "facts"):
            self._state.db.execute(f"UPDATE {table} SET trace_id = ? WHERE trace_id = ?", (join.trace_id, orphan))
        self._state.db.execute("DELETE FROM traces WHERE trace_id = ?", (orphan,))
        source, target = traces.get(orphan), traces.get(join.trace_id)
        if source is not None and target is not None:
            target.open.update(source.open)
            target.row.spans += source.row.spans


def _signed(span: int) -> int:
    """Return ``span`` as SQLite stores numbers: 64 bits with a sign."""
    span &= (1 << 64) - 1
    return span - (1 << 64) if span >= 1 << 63 else span
