"""Create every table of the state database through numbered migrations: ``PRAGMA user_version`` counts the applied
migrations.

Never edit a migration: databases of runs have been through it. A change of the tables is another entry at the end. All
missing migrations are applied in one transaction, so a kill in the middle leaves the database unchanged.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3


class NewerDatabase(sqlite3.DatabaseError):
    """Refuse a database that a newer autotrace wrote; the message tells the user so, and how to go on."""


def migrate(db: sqlite3.Connection) -> None:
    """Update ``db`` (in autocommit mode) to the newest version. Raises ``NewerDatabase``, or ``sqlite3.Error`` if the
    database cannot be written; the database is then unchanged."""
    if not is_older(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statements in STATE[_version(db) :]:  # read again: another process may have migrated
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {_BEFORE + len(STATE)}")
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


def is_older(db: sqlite3.Connection) -> bool:
    """Return whether an earlier release wrote ``db``. Raises ``NewerDatabase``."""
    return _version(db) < len(STATE)


def roll_back(db: sqlite3.Connection) -> None:
    """End the transaction, if a transaction is open: on a full disk SQLite has rolled back by itself. Never raises, so
    that the caller sees the first error."""
    with contextlib.suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version(db: sqlite3.Connection) -> int:
    number = int(db.execute("PRAGMA user_version").fetchone()[0])
    if number <= _BEFORE and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError(
            "an autotrace before 0.1.0 wrote it: remove it, and all of the run is delivered again"
        )
    version = max(0, number - _BEFORE)
    if version > len(STATE):
        raise NewerDatabase(
            f"the database was written by a newer version of autotrace (schema version {number}, this autotrace knows "
            f"{_BEFORE + len(STATE)}); upgrade autotrace"
        )
    for kind, sql in db.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if kind not in ("table", "index") or _COMPUTES.search(sql) or (kind == "index" and sql.count("(") > 1):
            raise sqlite3.DatabaseError("it is not as autotrace makes it: a view, trigger or expression is in it")
    return version


_COMPUTES = re.compile(r"\b(?:AS|CHECK|GENERATED|VIRTUAL|COLLATE|REFERENCES)\b|\bDEFAULT\s*\(|/\*|--", re.IGNORECASE)
"""Match parts of a table's definition that make SQLite run something when the table is read or written."""

_FIRST = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # How far each segment was read
    "CREATE TABLE segments (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL,"
    " header BLOB, sealed TEXT, unusable TEXT)",
    "CREATE TABLE defines (segment INTEGER, id INTEGER, key TEXT, name TEXT, role TEXT,"
    " PRIMARY KEY (segment, id)) WITHOUT ROWID",
    "CREATE TABLE processes (process TEXT PRIMARY KEY, last_ns INTEGER NOT NULL DEFAULT 0, ended TEXT,"
    " torn INTEGER NOT NULL DEFAULT 0, skipped TEXT NOT NULL DEFAULT '{}', counters BLOB) WITHOUT ROWID",
    "CREATE TABLE reports (process TEXT, key TEXT, name TEXT, state TEXT, reason TEXT,"
    " PRIMARY KEY (process, key, name)) WITHOUT ROWID",
    "CREATE TABLE binds (id INTEGER PRIMARY KEY, name TEXT, value BLOB, UNIQUE (name, value))",
    # Traces: where their records lie, one line about each, and late facts. Lines lie in the order in which the traces
    # began, so traces that end together are on the same pages.
    "CREATE TABLE places (trace_id TEXT NOT NULL, segment INTEGER NOT NULL, offsets BLOB NOT NULL)",
    "CREATE INDEX places_of ON places (trace_id)",
    "CREATE TABLE traces (trace_id TEXT PRIMARY KEY, name TEXT, role TEXT, status TEXT, step INTEGER,"
    " sample_index TEXT, rollout_n INTEGER, validate INTEGER, uid TEXT, session TEXT, data_source TEXT,"
    " experiment_name TEXT, project_name TEXT, attempt INTEGER, start_ns INTEGER, end_ns INTEGER, turns INTEGER,"
    " tool_calls INTEGER, spans INTEGER, prompt_tokens INTEGER, response_tokens INTEGER, reward REAL, error TEXT,"
    " facts TEXT, attributes TEXT, times TEXT, group_key TEXT, kept TEXT, complete INTEGER, version INTEGER,"
    " late_spans INTEGER NOT NULL DEFAULT 0, profile TEXT NOT NULL DEFAULT '{}', root_id TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX traces_uid ON traces (uid)",
    "CREATE INDEX traces_group ON traces (group_key)",
    "CREATE INDEX traces_open ON traces (complete) WHERE complete = 0",
    "CREATE TABLE facts (segment INTEGER, offset INTEGER, trace_id TEXT, uid TEXT, session TEXT,"
    " digest TEXT, output TEXT, name TEXT NOT NULL, value BLOB, at_ns INTEGER, score REAL, named TEXT,"
    " PRIMARY KEY (segment, offset)) WITHOUT ROWID",
    "CREATE INDEX facts_of ON facts (trace_id)",
    "CREATE INDEX facts_waiting ON facts (uid) WHERE trace_id IS NULL",
    "CREATE INDEX facts_named ON facts (named) WHERE trace_id IS NULL",
    "CREATE INDEX facts_digest ON facts (digest) WHERE uid IS NULL",
    "CREATE TABLE digests (digest TEXT, trace_id TEXT, PRIMARY KEY (digest, trace_id)) WITHOUT ROWID",
    "CREATE INDEX digests_of ON digests (trace_id)",
    "CREATE TABLE requests (request TEXT PRIMARY KEY, trace_id TEXT, span INTEGER) WITHOUT ROWID",
    "CREATE TABLE joins (orphan TEXT PRIMARY KEY, trace_id TEXT, span INTEGER) WITHOUT ROWID",
    "CREATE INDEX joins_of ON joins (trace_id)",
    "CREATE TABLE removed (trace_id TEXT PRIMARY KEY) WITHOUT ROWID",
    # Delivery
    "CREATE TABLE queue (backend TEXT, trace_id TEXT, version INTEGER NOT NULL,"
    " is_whole INTEGER NOT NULL DEFAULT 1, UNIQUE (backend, trace_id))",
    "CREATE INDEX queue_of ON queue (backend)",  # in the order of insertion
    "CREATE TABLE deliveries (backend TEXT, trace_id TEXT, version INTEGER NOT NULL,"
    " delivered_ns INTEGER, page TEXT, rejected TEXT, PRIMARY KEY (backend, trace_id)) WITHOUT ROWID",
    "CREATE INDEX deliveries_of ON deliveries (trace_id)",
    "CREATE TABLE admitted (backend TEXT, trace_id TEXT, group_key TEXT, step INTEGER,"
    " bytes INTEGER, PRIMARY KEY (backend, trace_id)) WITHOUT ROWID",
    "CREATE INDEX admitted_groups ON admitted (backend, group_key)",
)
"""Create the tables of 0.1.0."""

STATE: tuple[tuple[str, ...], ...] = (_FIRST,)
"""List the statements that bring ``state.db`` of a run from each version to the next."""
_BEFORE = 6
"""Store the ``PRAGMA user_version`` of the last state before 0.1.0."""
