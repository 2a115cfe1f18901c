"""Store which backend gets which traces, and which traces each backend has: the tables ``queue`` and ``deliveries``.

A row leaves the queue only after the backend acknowledged, or rejected, that version of the trace.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

from autotrace.ship.store.state import State

TABLES = "tables"
"""Name the run's own tables among the backends: everything goes there."""


def not_in_tables(state: State) -> frozenset[str]:
    """Return the traces that the tables lack in their present version."""
    rows = state.db.execute(
        "SELECT trace_id FROM traces WHERE NOT complete OR NOT EXISTS (SELECT 1 FROM deliveries WHERE"
        " deliveries.trace_id = traces.trace_id AND backend = ? AND deliveries.version >= traces.version)",
        (TABLES,),
    )
    return frozenset(trace_id for (trace_id,) in rows)


class DeliveryQueue:
    """Queue deliveries of one run to all its backends. Writes belong into a transaction of ``state``."""

    def __init__(self, state: State) -> None:
        self._db = state.db

    def add(self, backends: Iterable[str], trace_id: str, version: int) -> None:
        """Queue version ``version`` of a trace."""
        self._db.executemany(
            "INSERT OR REPLACE INTO queue VALUES (?, ?, ?, 1)", ((backend, trace_id, version) for backend in backends)
        )

    def add_facts(self, backends: Iterable[str], trace_id: str, version: int) -> None:
        """Queue the facts of version ``version``. A backend that lacks the trace gets the whole trace."""
        self._db.executemany(
            "INSERT INTO queue SELECT ?1, ?2, ?3, NOT EXISTS (SELECT 1 FROM deliveries WHERE backend = ?1"
            " AND trace_id = ?2 AND rejected IS NULL) WHERE true"
            " ON CONFLICT (backend, trace_id) DO UPDATE SET version = excluded.version",
            ((backend, trace_id, version) for backend in backends),
        )

    def is_whole(self, backend: str, trace_id: str) -> bool:
        """Return whether calls are delivered; False: facts alone."""
        sql = "SELECT is_whole FROM queue WHERE backend = ? AND trace_id = ?"
        row = self._db.execute(sql, (backend, trace_id)).fetchone()
        return row is None or bool(row[0])

    def add_missing(self, backend: str, everything: bool = False) -> None:
        """Queue every complete trace that ``backend`` never got (a backend that was added later). ``everything``:
        include the traces that the keep-rules withhold."""
        kept = "1" if everything else "kept != ''"
        self._db.execute(
            f"INSERT OR IGNORE INTO queue SELECT ?, trace_id, version, 1 FROM traces WHERE complete = 1 AND {kept} "
            "AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.backend = ? AND d.trace_id = traces.trace_id)",
            (backend, backend),
        )

    def add_again(self, backend: str, *, rejected: bool) -> None:
        """Queue again everything that ``backend`` has, or everything that ``backend`` has rejected."""
        self._db.execute(
            "INSERT OR IGNORE INTO queue SELECT ?, trace_id, version, 1 FROM deliveries "
            "WHERE backend = ? AND (rejected IS NOT NULL) = ?",
            (backend, backend, rejected),
        )

    def keep_only(self, backends: Sequence[str]) -> None:
        """Remove all deliveries except to ``backends``."""
        marks = ", ".join("?" * len(backends))
        self._db.execute(f"DELETE FROM queue WHERE backend NOT IN ({marks})", list(backends))

    def next(self, backend: str, limit: int, without: Collection[str] = (), after: str = "") -> list[tuple[str, int]]:
        """Return the trace ids and versions to deliver next, in the order in which they were queued; ``without`` the
        traces under way, and without traces that ``after``, another destination, still waits for."""
        rows = self._db.execute(
            "SELECT trace_id, version FROM queue q WHERE backend = ? AND NOT EXISTS (SELECT 1 FROM queue e WHERE"
            " e.backend = ? AND e.trace_id = q.trace_id) ORDER BY rowid LIMIT ?",
            (backend, after, limit + len(without)),
        ).fetchall()
        return [(row[0], row[1]) for row in rows if row[0] not in without][:limit]

    def acknowledged(self, backend: str, delivered: Iterable[tuple[str, int, str | None]]) -> None:
        """Store that ``backend`` has the versions: (trace id, version, page)."""
        now, delivered = time.time_ns(), list(delivered)
        self._db.executemany(
            "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, NULL) ON CONFLICT (backend, trace_id) DO UPDATE SET"
            " version = excluded.version, delivered_ns = excluded.delivered_ns, page = ifnull(excluded.page, page),"
            " rejected = NULL",
            ((backend, trace_id, version, now, page) for trace_id, version, page in delivered),
        )
        self._remove(backend, ((trace_id, version) for trace_id, version, _ in delivered))

    def rejected(self, backend: str, rejected: Iterable[tuple[str, int, str]]) -> None:
        """Store that ``backend`` will never take the versions: (trace id, version, reason).

        The time and page of an earlier version, which the backend has, stay.
        """
        rejected = list(rejected)
        self._db.executemany(
            "INSERT INTO deliveries VALUES (?, ?, ?, NULL, NULL, ?) ON CONFLICT (backend, trace_id) "
            "DO UPDATE SET version = excluded.version, rejected = excluded.rejected",
            ((backend, trace_id, version, reason[:1000]) for trace_id, version, reason in rejected),
        )
        self._remove(backend, ((trace_id, version) for trace_id, version, _ in rejected))

    def _remove(self, backend: str, settled: Iterable[tuple[str, int]]) -> None:
        sql = "DELETE FROM queue WHERE backend = ? AND trace_id = ? AND version <= ?"
        self._db.executemany(sql, ((backend, *one) for one in settled))
