"""``state.db``: what the collector knows for certain. Everything in it can be told again from the segments, except what
the backends acknowledged.

One transaction per reading round stores how far each segment was read together with what was found there, so a
collector killed at any point continues without losing or repeating a record. A trajectory's content stays in the
segments; here is where its records lie (``places``), one line about it (``traces``) and what is to be delivered
(``queue``: a row disappears only after the backend acknowledged that version).
"""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import files, layout
from autotrace.ship.store.row import COLUMNS, Row
from autotrace.spool.records import Define, Header

SCHEMA_VERSION = "2"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL,
    header BLOB, sealed TEXT, unusable TEXT);
CREATE TABLE IF NOT EXISTS defines (
    segment INTEGER, id INTEGER, key TEXT, name TEXT, role TEXT, PRIMARY KEY (segment, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processes (
    process TEXT PRIMARY KEY, last_ns INTEGER NOT NULL DEFAULT 0, ended TEXT, torn INTEGER NOT NULL DEFAULT 0,
    skipped TEXT NOT NULL DEFAULT '{}', counters BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (
    process TEXT, key TEXT, name TEXT, state TEXT, reason TEXT, PRIMARY KEY (process, key, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS binds (id INTEGER PRIMARY KEY, name TEXT, value BLOB, UNIQUE (name, value));
CREATE TABLE IF NOT EXISTS places (trace_id TEXT NOT NULL, segment INTEGER NOT NULL, offsets BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS places_of ON places (trace_id);
CREATE TABLE IF NOT EXISTS facts (
    segment INTEGER, offset INTEGER, trace_id TEXT, uid TEXT, session TEXT, digest TEXT, output TEXT,
    name TEXT NOT NULL, value BLOB, at_ns INTEGER, score REAL, PRIMARY KEY (segment, offset)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS facts_of ON facts (trace_id);
CREATE INDEX IF NOT EXISTS facts_waiting ON facts (uid) WHERE trace_id IS NULL;
CREATE TABLE IF NOT EXISTS digests (digest TEXT, trace_id TEXT, PRIMARY KEY (digest, trace_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queue (
    backend TEXT, trace_id TEXT, version INTEGER NOT NULL, PRIMARY KEY (backend, trace_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
    backend TEXT, trace_id TEXT, version INTEGER NOT NULL, delivered_ns INTEGER, page TEXT, rejected TEXT,
    PRIMARY KEY (backend, trace_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deliveries_of ON deliveries (trace_id);
CREATE TABLE IF NOT EXISTS removed (trace_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""


def _traces_schema() -> str:
    kinds = {"int": "INTEGER", "float": "REAL", "bool": "INTEGER"}
    columns = ", ".join(f"{name} {kinds.get(kind, 'TEXT')}" for name, kind in COLUMNS.items() if name != "trace_id")
    return (
        f"CREATE TABLE IF NOT EXISTS traces (trace_id TEXT PRIMARY KEY, {columns}) WITHOUT ROWID;"
        "CREATE INDEX IF NOT EXISTS traces_uid ON traces (uid);"
        "CREATE INDEX IF NOT EXISTS traces_group ON traces (group_key);"
        "CREATE INDEX IF NOT EXISTS traces_open ON traces (complete) WHERE complete = 0;"
    )


class State:
    """One connection to the state of a run. Not thread-safe. Writes belong to the holder of ``shipper.lock``."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, timeout=20.0, isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA journal_mode=WAL")
        # Killed processes lose nothing with NORMAL; a power cut may lose the last rounds, which are then read again.
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.executescript(_SCHEMA + _traces_schema())
        if self.meta("schema") == "1":
            self.db.execute("ALTER TABLE facts ADD COLUMN score REAL")
        self.put_meta("schema", SCHEMA_VERSION)

    @classmethod
    def of_run(cls, run_folder: str | Path) -> State:
        """Open or create the state of ``run_folder``. Raises ``sqlite3.Error`` when the folder cannot be written."""
        path = Path(run_folder, layout.STATE_DB)
        files.ensure(path)
        return cls(str(path))

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def __enter__(self) -> State:
        """Begin a transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.db.execute("ROLLBACK" if kind else "COMMIT")

    # -- small things --------------------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """A remembered value."""
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Remember a value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def metas(self, prefix: str) -> dict[str, str]:
        """Remembered values whose key begins with ``prefix``, without it."""
        rows = self.db.execute("SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
        return {row[0][len(prefix) :]: row[1] for row in rows}

    # -- segments ------------------------------------------------------------------------------------------------------

    def segments(self) -> dict[str, sqlite3.Row]:
        """All known segments by name."""
        return {row["name"]: row for row in self.db.execute("SELECT * FROM segments")}

    def add_segment(self, name: str) -> int:
        """Make a segment known; its number."""
        return int(self.db.execute("INSERT INTO segments (name, offset) VALUES (?, 0)", (name,)).lastrowid or 0)

    def put_segment(
        self, id: int, offset: int, header: Header | None, sealed: str | None, unusable: str | None
    ) -> None:
        """Remember how far a segment was read."""
        head = None if header is None else msgspec.msgpack.encode(header)
        self.db.execute(
            "UPDATE segments SET offset = ?, header = ?, sealed = ?, unusable = ? WHERE id = ?",
            (offset, head, sealed, unusable, id),
        )

    def put_define(self, segment: int, define: Define) -> None:
        """Remember what a segment calls target ``define.id``."""
        self.db.execute(
            "INSERT OR REPLACE INTO defines VALUES (?, ?, ?, ?, ?)",
            (segment, define.id, define.key, define.name, define.role),
        )

    def remove_segment(self, id: int, seal: str) -> None:
        """A segment goes: it counts as sealed, and its traces are not delivered any more."""
        self.db.execute("UPDATE segments SET sealed = ? WHERE id = ?", (seal, id))
        self.db.execute("INSERT OR IGNORE INTO removed SELECT trace_id FROM places WHERE segment = ?", (id,))

    def removed(self, trace_id: str) -> bool:
        """Whether a part of a trace was removed."""
        return self.db.execute("SELECT 1 FROM removed WHERE trace_id = ?", (trace_id,)).fetchone() is not None

    # -- traces --------------------------------------------------------------------------------------------------------

    def row(self, trace_id: str) -> Row | None:
        """The line about a trace."""
        found = self.db.execute("SELECT * FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return None if found is None else Row.of(found)

    def rows(self, where: str = "1", values: Sequence[Any] = ()) -> list[Row]:
        """Lines that satisfy ``where`` (SQL of ours, values bound)."""
        return [Row.of(found) for found in self.db.execute(f"SELECT * FROM traces WHERE {where}", values)]

    def put_row(self, row: Row) -> None:
        """Store the line about a trace."""
        names = ", ".join(COLUMNS)
        marks = ", ".join("?" * len(COLUMNS))
        self.db.execute(f"INSERT OR REPLACE INTO traces ({names}) VALUES ({marks})", row.values())

    def remove_row(self, trace_id: str) -> None:
        """Forget the line about a trace."""
        self.db.execute("DELETE FROM traces WHERE trace_id = ?", (trace_id,))

    def put_places(self, places: Mapping[tuple[str, int], array[int]]) -> None:
        """Remember where records lie: (trace id, segment) -> offsets."""
        self.db.executemany(
            "INSERT INTO places VALUES (?, ?, ?)",
            ((trace_id, segment, offsets.tobytes()) for (trace_id, segment), offsets in places.items()),
        )

    def places(self, trace_id: str) -> dict[int, list[int]]:
        """Where the records of a trace lie: segment -> ascending offsets."""
        found: dict[int, set[int]] = {}
        for row in self.db.execute("SELECT segment, offsets FROM places WHERE trace_id = ?", (trace_id,)):
            offsets = array("q")
            offsets.frombytes(row["offsets"])
            found.setdefault(row["segment"], set()).update(offsets)
        return {segment: sorted(offsets) for segment, offsets in found.items()}

    # -- delivery ------------------------------------------------------------------------------------------------------

    def enqueue(self, backends: Iterable[str], trace_id: str, version: int) -> None:
        """Version ``version`` of a trace is to be delivered."""
        self.db.executemany(
            "INSERT OR REPLACE INTO queue VALUES (?, ?, ?)", ((backend, trace_id, version) for backend in backends)
        )

    def kept(self, group: str) -> str | None:
        """What was decided about a group (``Row.kept``)."""
        row = self.db.execute("SELECT kept FROM traces WHERE group_key = ? AND kept IS NOT NULL", (group,)).fetchone()
        return None if row is None else str(row[0])

    def group(self, group: str) -> list[Row]:
        """All trajectories of a group."""
        return self.rows("group_key = ?", (group,))

    def decide(self, group: str, kept: str) -> None:
        """Store the decision about a group with its trajectories."""
        self.db.execute("UPDATE traces SET kept = ? WHERE group_key = ?", (kept, group))

    def keep_all(self) -> None:
        """A person asks for everything: what the rules left in the spool is to be delivered too."""
        self.db.execute("UPDATE traces SET kept = 'all' WHERE complete = 1")

    def enqueue_missing(self, backend: str) -> None:
        """Queue every complete trace that ``backend`` never got (a backend that was added later)."""
        self.db.execute(
            "INSERT OR IGNORE INTO queue SELECT ?, trace_id, version FROM traces WHERE complete = 1 AND kept != '' "
            "AND trace_id NOT IN (SELECT trace_id FROM removed) AND NOT EXISTS "
            "(SELECT 1 FROM deliveries d WHERE d.backend = ? AND d.trace_id = traces.trace_id)",
            (backend, backend),
        )

    def dequeue_others(self, backends: Sequence[str]) -> None:
        """Nothing is to be delivered to any but ``backends``."""
        marks = ", ".join("?" * len(backends))
        self.db.execute(f"DELETE FROM queue WHERE backend NOT IN ({marks})", list(backends))

    def enqueue_again(self, backend: str) -> None:
        """Queue everything that ``backend`` acknowledged once more (the run it belongs to became known)."""
        self.db.execute(
            "INSERT OR IGNORE INTO queue SELECT ?, trace_id, version FROM deliveries "
            "WHERE backend = ? AND rejected IS NULL AND trace_id NOT IN (SELECT trace_id FROM removed)",
            (backend, backend),
        )

    def enqueue_rejected(self, backend: str) -> None:
        """Queue what ``backend`` would not take once more."""
        self.db.execute(
            "INSERT OR IGNORE INTO queue SELECT ?, trace_id, version FROM deliveries "
            "WHERE backend = ? AND rejected IS NOT NULL AND trace_id NOT IN (SELECT trace_id FROM removed)",
            (backend, backend),
        )

    def next_in_queue(self, backend: str, limit: int) -> list[tuple[str, int]]:
        """Trace ids and versions to deliver next, oldest end first."""
        rows = self.db.execute(
            "SELECT q.trace_id, q.version FROM queue q JOIN traces t USING (trace_id) WHERE q.backend = ? "
            "ORDER BY t.end_ns LIMIT ?",
            (backend, limit),
        )
        return [(row[0], row[1]) for row in rows]

    def acknowledged(self, backend: str, delivered: Iterable[tuple[str, int, str | None]]) -> None:
        """``backend`` has these: (trace id, version, page)."""
        now = time.time_ns()
        for trace_id, version, page in delivered:
            self.db.execute(
                "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?, ?, NULL)",
                (backend, trace_id, version, now, page),
            )
            self._dequeue(backend, trace_id, version)

    def refused(self, backend: str, rejected: Iterable[tuple[str, int, str]]) -> None:
        """``backend`` will never take these: (trace id, version, reason)."""
        for trace_id, version, reason in rejected:
            self.db.execute(
                "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, NULL, NULL, ?)",
                (backend, trace_id, version, reason[:1000]),
            )
            self._dequeue(backend, trace_id, version)

    def _dequeue(self, backend: str, trace_id: str, version: int) -> None:
        self.db.execute(
            "DELETE FROM queue WHERE backend = ? AND trace_id = ? AND version <= ?", (backend, trace_id, version)
        )

    def count(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The number that ``sql`` (ours) tells."""
        return int(self.db.execute(sql, values).fetchone()[0] or 0)


class Memory(dict[str, str]):
    """What a sink must know again in the next process: text by name, stored at once.

    Used in the sink's thread, so each change is a connection of its own; there are a handful in a run.
    """

    def __init__(self, state: State, prefix: str) -> None:
        super().__init__(state.metas(prefix))
        self._path = str(state.db.execute("PRAGMA database_list").fetchone()["file"])
        self._prefix = prefix

    def __setitem__(self, key: str, value: str) -> None:
        if self.get(key) == value:
            return
        super().__setitem__(key, value)
        db = sqlite3.connect(self._path, timeout=20.0, isolation_level=None)
        try:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (self._prefix + key, value))
        finally:
            db.close()
