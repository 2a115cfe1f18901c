"""Write trajectories into the SQLite file that autotrace itself created: one statement for each table.

MLflow's store class merges row by row through an object mapper, which costs several times as much CPU. This module
writes the same rows. The module writes only into a file with autotrace's mark (``uri.is_own``), whose schema the
installed release of MLflow made, and only for releases that were compared (``tests/sinks/test_mlflow_own_file.py``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import chain
from typing import Any

from autotrace.sinks.mlflow.info import TraceDescription
from autotrace.sinks.mlflow.rows import IN_DATABASE, SPANS_LOCATION, Row, RowBuilder
from autotrace.sinks.mlflow.sending import MlflowTrace, StoreError
from autotrace.sinks.mlflow.uri import is_own, revision_of
from autotrace.sinks.protocol import Refused, Unavailable

COMPARED = (3, 18)
"""Newest release of MLflow whose rows were compared with the rows of this module."""
BUSY = 20.0
"""Seconds to wait for another writer, as MLflow does."""
_TABLES = (
    "experiments", "trace_info", "trace_tags", "trace_request_metadata", "trace_metrics", "spans", "assessments",
    "entity_associations",
)  # fmt: skip
_KEPT_IF_ABSENT = frozenset({"request_preview", "response_preview", "session_id"})
"""Columns of ``trace_info`` whose value stays without a new value; the token counts are kept, too."""


class OwnFile:
    """Writes rows into the file at ``path``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._revision = revision_of(path)
        with self._connected() as db:
            columns = {table: db.execute(f"PRAGMA table_info({table})").fetchall() for table in _TABLES}
        self._keys = {
            table: [name for _, name, *_, key in found if key] for table, found in columns.items()
        }  # fmt: skip
        self._rows = RowBuilder({table: {name for _, name, *_ in found} for table, found in columns.items() if found})
        self._join: Any = import_module("mlflow.utils.uri").append_to_uri_path

    @classmethod
    def at(cls, path: str | None) -> OwnFile | None:
        """Open the file; None if MLflow's store class must write: another file, a release that was not compared, a
        setting."""
        if path is None or not is_own(path) or release() > COMPARED:
            return None
        variables = import_module("mlflow.environment_variables")
        rollups: Any = getattr(variables, "MLFLOW_SQL_TRACE_ROLLUPS_ENABLED", None)
        if rollups is not None and rollups.get():  # sums by day, which the store class invalidates
            return None
        return cls(path)

    def write(self, experiment_id: str, deliveries: Sequence[MlflowTrace], run_id: str | None) -> list[MlflowTrace]:
        """Store all of ``deliveries`` or none; return the deliveries that only MLflow's store class can take.

        Raises ``Refused``, ``Unavailable``, ``StoreError``.
        """
        number = int(experiment_id)
        with _errors():
            rows = [(delivery, self._rows.spans(delivery.spans, number)) for delivery in deliveries]
            with self._transaction() as db:
                place = self._artifacts(db, number)
                elsewhere = self._elsewhere(db, [one.description.trace_id for one, _ in rows], number)
                taken = [
                    (one, spans) for one, spans in rows
                    if place is not None and spans is not None and one.description.trace_id not in elsewhere
                ]  # fmt: skip
                self._store(db, [one for one, _ in taken], number, place or "", run_id)
                self._upsert(db, "spans", chain.from_iterable(spans for _, spans in taken))
        return [one for one, _ in rows if one not in [other for other, _ in taken]]

    def learn(self, experiment_id: str, traces: Sequence[TraceDescription]) -> None:
        """Add tags and feedback; see ``Store``. Passes over a trace that was deleted meanwhile. Raises as ``write``."""
        with _errors(), self._transaction() as db:
            for trace in traces:
                sql = "SELECT timestamp_ms FROM trace_info WHERE request_id = ?"
                if (row := db.execute(sql, (trace.trace_id,)).fetchone()) is not None:
                    self._upsert(db, "trace_tags", self._rows.tags(trace))
                    self._upsert(db, "assessments", self._rows.assessments(trace, int(experiment_id), row[0]))

    def _store(
        self, db: sqlite3.Connection, deliveries: Sequence[MlflowTrace], number: int, place: str, run_id: str | None
    ) -> None:
        """Store everything of ``deliveries`` except the spans."""
        rows, traces = self._rows, [delivery.description for delivery in deliveries]
        self._upsert(db, "trace_info", (rows.info(trace, number) for trace in traces))
        for trace in traces:
            artifacts = self._join(place, "traces", trace.trace_id, "artifacts")
            self._upsert(db, "trace_tags", [*rows.tags(trace), *rows.places(trace, artifacts)])
            self._upsert(db, "trace_request_metadata", rows.metadata(trace))
            self._upsert(db, "trace_metrics", rows.metrics(trace))
            self._upsert(db, "assessments", rows.assessments(trace, number, trace.start_ms))
        if run_id:
            links = "INSERT OR IGNORE INTO entity_associations ({}) VALUES ({})"
            _many(db, links, (rows.link(trace, run_id) for trace in traces))

    def _upsert(self, db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
        keys = self._keys[table]

        def change(name: str) -> str:
            if name == "db_payload_generation":
                return f"{name} = {table}.{name} + 1"
            if table == "trace_info" and (name in _KEPT_IF_ABSENT or name.endswith("_tokens")):
                return f"{name} = coalesce(excluded.{name}, {table}.{name})"
            return f"{name} = excluded.{name}"

        rows = list(rows)
        changes = ", ".join(change(name) for name in (rows[0] if rows else ()) if name not in keys)
        sql = f"INSERT INTO {table} ({{}}) VALUES ({{}}) ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
        _many(db, sql, rows)

    def _artifacts(self, db: sqlite3.Connection, experiment_id: int) -> str | None:
        """Return the place of an active experiment's artifacts; None: the experiment is deleted or gone."""
        sql = "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND lifecycle_stage = 'active'"
        row = db.execute(sql, (experiment_id,)).fetchone()
        return None if row is None else str(row[0])

    def _elsewhere(self, db: sqlite3.Connection, trace_ids: Sequence[str], experiment_id: int) -> set[str]:
        """Return the traces that are stored in another experiment or in an archive."""
        marks = ", ".join("?" * len(trace_ids))
        sql = (
            f"SELECT request_id FROM trace_info WHERE request_id IN ({marks}) AND experiment_id != ? UNION"
            f" SELECT request_id FROM trace_tags WHERE request_id IN ({marks}) AND key = ? AND value != ?"
        )
        values = (*trace_ids, experiment_id, *trace_ids, SPANS_LOCATION, IN_DATABASE)
        return {trace_id for (trace_id,) in db.execute(sql, values)}

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=BUSY, isolation_level=None)) as db:
            yield db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db:
            # a power cut loses the last commits, which are then delivered again
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("BEGIN IMMEDIATE")  # takes the lock before anything is read: what was read stays true
            (revision,) = db.execute("SELECT version_num FROM alembic_version").fetchone()
            if revision != self._revision:
                raise Refused(
                    f"the MLflow store was migrated from schema {self._revision} to {revision} meanwhile; install the "
                    "release of MLflow that did it where the shipper runs, then `autotrace ship RUN`"
                )
            yield db
            db.execute("COMMIT")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(f"the MLflow store cannot be written: {error}") from error
    except (sqlite3.Error, UnicodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(str(error)[:300]) from error


def _many(db: sqlite3.Connection, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Execute ``sql`` with the columns and the values of ``rows``, which have the same columns in the same order."""
    rows = list(rows)
    if rows:
        names = ", ".join(rows[0])
        db.executemany(sql.format(names, ", ".join("?" * len(rows[0]))), [tuple(row.values()) for row in rows])


def release() -> tuple[int, int]:
    """Return the installed release of MLflow, ``(3, 17)``."""
    major, minor = import_module("mlflow").__version__.split(".")[:2]
    return int(major), int(minor)
