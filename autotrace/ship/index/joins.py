"""Requests that lost their context on the way: joined to the call that made them by the request's id.

The call reports the id of its request (``statements.requests``); the engine's side, which sees no caller, begins a
trace of its own and names the id it was given. The two are the same up to what engines and routers append. Whichever
is read first waits for the other, as long as the engine's trace is not complete. Calls that say which trajectory they
are of (``records.OF``) are joined in the same way, by exactly that id; they wait until it is known.
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
"""What is behind an id: ``_P``/``_D`` of disaggregated prefill and decode, eight digits of vLLM's engine core."""
MAX_WAITING = 65_536
"""Orphans that are waited for; the oldest is forgotten then."""


@dataclass(frozen=True)
class Join:
    """Where an orphan's root belongs."""

    trace_id: str
    span: int


def wanted(attributes: Mapping[str, Any], role: str) -> tuple[str, ...]:
    """By which ids a trace with such a root is joined; none: it is one of its own."""
    trajectory = attributes.get(OF)
    if isinstance(trajectory, str) and trajectory:
        return (trajectory[:1000],)
    return tuple(names(attributes.get("request_id"))) if role == "engine" else ()


def names(request_id: Any) -> Iterator[str]:
    """What a request may be called on the other side."""
    if not isinstance(request_id, str) or not request_id:
        return
    yield request_id[:1000]
    shorter = _APPENDED.sub("", request_id[:1000])
    if shorter and shorter != request_id:
        yield shorter


class Joins:
    """The joins of one run."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._joined: dict[str, Join] = {
            row["orphan"]: Join(row["trace_id"], row["span"]) for row in state.db.execute("SELECT * FROM joins")
        }
        self._waiting: dict[str, dict[str, None]] = {}
        """Request id -> orphans."""

    def of(self, trace_id: str) -> Join | None:
        """Where the records of ``trace_id`` belong, if it is a joined orphan."""
        return self._joined.get(trace_id)

    def attached(self, record: Any) -> Any:
        """``record``, an orphan's root hung where it belongs."""
        if isinstance(record, Open) and record.parent == 0 and record.trace.hex() in self._joined:
            return msgspec.structs.replace(record, parent=self._joined[record.trace.hex()].span)
        return record

    def wait(self, trace_id: str, names: Iterable[str]) -> None:
        """``trace_id`` may be the other side of a request that was not read yet, which has one of these ``names``."""
        for name in names:
            self._waiting.setdefault(name, {})[trace_id] = None
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def root(self, trace_id: str, record: Open, role: str) -> Join | None:
        """A trace begins: the join, if it is the other side of a request read before; else it waits for one."""
        searched = wanted(record.attributes or {}, role)
        for name in searched:
            row = self._state.db.execute("SELECT trace_id, span FROM requests WHERE request = ?", (name,)).fetchone()
            if row is not None and row["trace_id"] != trace_id:
                return self._join(trace_id, Join(row["trace_id"], row["span"]))
        self.wait(trace_id, searched)
        return None

    def request(self, fact: Fact) -> list[tuple[str, Join]]:
        """A call reported its request's id, or its trajectory's: the orphans that were waiting for it, and their
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
        """It is too late to join ``orphan``."""
        del self._joined[orphan]
        self._state.db.execute("DELETE FROM joins WHERE orphan = ?", (orphan,))

    def move(
        self, orphan: str, join: Join, traces: Mapping[str, OpenTrace], offsets: dict[tuple[str, int], array[int]]
    ) -> None:
        """What was already read of ``orphan`` belongs to the other trace from now on."""
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
    """``span`` as SQLite holds it: 64 bits with a sign."""
    span &= (1 << 64) - 1
    return span - (1 << 64) if span >= 1 << 63 else span
