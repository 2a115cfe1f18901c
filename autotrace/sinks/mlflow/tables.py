"""Many trajectories into MLflow's tables in one transaction: a row is an item of a list, and a table one statement.

MLflow's store class merges row by row through its object mapper (3.7 ms of CPU a span). This writes the same rows
through the tables of the installed MLflow; those of traces that PostgreSQL does not have yet by COPY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.dialects import postgresql, sqlite

from autotrace.sinks.mlflow import copying
from autotrace.sinks.mlflow.content import Contents
from autotrace.sinks.mlflow.info import TraceDescription
from autotrace.sinks.mlflow.rows import IN_DATABASE, SPANS_LOCATION, Row, Rows
from autotrace.sinks.mlflow.schema import SCHEMAS, Schema
from autotrace.sinks.mlflow.store import Delivery
from autotrace.sinks.protocol import Refused

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_KEPT_IF_ABSENT = frozenset({"request_preview", "response_preview", "session_id"})
"""Columns of ``trace_info`` whose value stays where there is no new one; the token counts are too."""
Prepared = tuple[Delivery, list[Row]]
"""A trajectory and the rows of its spans."""
BUSY = 20_000
"""Milliseconds to wait for another writer, as MLflow does."""


class TableWriter:
    """Writes into the database of MLflow's store ``store``."""

    def __init__(self, store: Any, revision: str, schema: Schema) -> None:
        self._store = store
        self._revision = revision
        self._schema = schema
        self._rows = Rows(schema, Contents(schema.ascii_only))
        self._models: Any = import_module("mlflow.store.tracking.dbmodels.models")
        self._dialect = store.engine.dialect.name
        self._copies = self._dialect == "postgresql" and store.engine.dialect.driver in copying.DRIVERS
        self._lz4: bool | None = None
        self._artifacts: dict[str, Any] = {}

    @classmethod
    def of(cls, store: Any) -> TableWriter | None:
        """None: MLflow's store class is to be used, because of the database, its schema or a setting of MLflow's."""
        if store.engine.dialect.name not in _INSERT or _rollups():
            return None
        with store.engine.connect() as connection:
            revision = _revision(connection)
        schema = SCHEMAS.get(revision)
        return None if schema is None else cls(store, revision, schema)

    def check_unchanged(self) -> None:
        """Raises ``Refused`` when the schema has been migrated since it was opened."""
        with self._store.engine.connect() as connection:
            self._check(connection)

    def _check(self, connection: Connection) -> None:
        revision = _revision(connection)
        if revision != self._revision:
            raise Refused(
                f"the MLflow store was migrated from schema {self._revision} to {revision} meanwhile; install the "
                "release of MLflow that did it where the shipper runs, then `autotrace ship RUN`"
            )

    def write(self, experiment_id: str, deliveries: Sequence[Delivery], run_id: str | None) -> list[Delivery]:
        """Store ``deliveries`` all or not at all; those that only MLflow's store class can take are returned.

        Raises ``Refused``, and SQLAlchemy's errors.
        """
        if experiment_id not in self._artifacts:
            self._artifacts[experiment_id] = self._store.get_experiment(experiment_id)
        number = int(experiment_id)
        left, rows = [], []
        for delivery in sorted(deliveries, key=lambda delivery: delivery.description.trace_id):
            spans = self._rows.spans(delivery.new, number)
            if spans is None:
                left.append(delivery)
            else:
                rows.append((delivery, spans))
        if not rows:
            return left
        with self._transaction() as connection:
            self._check(connection)
            if not self._active(connection, number):
                return list(deliveries)
            stored, elsewhere = self._stored(connection, [one[0].description.trace_id for one in rows], number)
            left += [delivery for delivery, _ in rows if delivery.description.trace_id in elsewhere]
            rows = [one for one in rows if one[0].description.trace_id not in elsewhere]
            new = [one for one in rows if self._copies and one[0].description.trace_id not in stored]
            known = [one for one in rows if not self._copies or one[0].description.trace_id in stored]
            inserted = self._insert(connection, [delivery.description for delivery, _ in new], number)
            # another writer was quicker with these
            left += [delivery for delivery, _ in new if delivery.description.trace_id not in inserted]
            new = [one for one in new if one[0].description.trace_id in inserted]
            self._upsert(
                connection,
                self._models.SqlTraceInfo.__table__,
                [self._rows.info(delivery.description, number) for delivery, _ in known],
            )
            self._write(connection, experiment_id, new, run_id, self._copy)
            self._write(connection, experiment_id, known, run_id, self._upsert)
        return left

    def _write(
        self,
        connection: Connection,
        experiment_id: str,
        taken: Sequence[Prepared],
        run_id: str | None,
        add: Callable[[Connection, Table, Sequence[Row]], None],
    ) -> None:
        """Store all but ``trace_info``, whose rows are there, by ``add``."""
        models, rows, number = self._models, self._rows, int(experiment_id)
        traces = [delivery.description for delivery, _ in taken]
        tags = (rows.tags(trace, self._artifact_location(experiment_id, trace.trace_id)) for trace in traces)
        add(connection, models.SqlTraceTag.__table__, _flat(tags))
        add(connection, models.SqlTraceMetadata.__table__, _flat(map(rows.metadata, traces)))
        if self._schema.metrics:
            add(connection, models.SqlTraceMetrics.__table__, _flat(map(rows.metrics, traces)))
        add(connection, models.SqlSpan.__table__, _flat(spans for _, spans in taken))
        add(connection, models.SqlAssessments.__table__, _flat(rows.assessments(trace, number) for trace in traces))
        if run_id and traces:
            links = [rows.link(trace, run_id) for trace in traces]
            insert = _INSERT[self._dialect](models.SqlEntityAssociation.__table__)
            connection.execute(insert.on_conflict_do_nothing(), links)

    def _insert(self, connection: Connection, traces: Sequence[TraceDescription], experiment_id: int) -> set[str]:
        """Insert the rows of ``trace_info`` that are not there; the ids of those."""
        if not traces:
            return set()
        if self._lz4 is None:
            self._lz4 = copying.can_use_lz4(connection)
        if self._lz4:
            copying.use_lz4(connection)
        table: Table = self._models.SqlTraceInfo.__table__
        insert = _INSERT[self._dialect](table).on_conflict_do_nothing().returning(table.c.request_id)
        infos = [self._rows.info(trace, experiment_id) for trace in traces]
        return set(connection.execute(insert, infos).scalars())

    def _copy(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        """Add rows of traces that this transaction has inserted: no other writer can have any."""
        if rows and copying.copies(table, list(rows[0])):
            copying.copy(connection, table, rows)
        else:
            self._upsert(connection, table, rows)

    def _upsert(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        if not rows:
            return
        insert = _INSERT[self._dialect](table)
        keys = [column.name for column in table.primary_key]
        changes: dict[str, Any] = {}
        for name in rows[0]:
            if name == "db_payload_generation":
                changes[name] = table.c[name] + 1
            elif table.name == "trace_info" and (name in _KEPT_IF_ABSENT or name.endswith("_tokens")):
                changes[name] = func.coalesce(insert.excluded[name], table.c[name])
            elif name not in keys:
                changes[name] = insert.excluded[name]
        connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=changes), rows)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._store.engine.connect() as connection:
            if self._dialect == "sqlite":
                for pragma in ("foreign_keys = ON", f"busy_timeout = {BUSY}"):
                    connection.exec_driver_sql(f"PRAGMA {pragma}")
                # takes the lock before anything is read: what was read stays true
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    def _active(self, connection: Connection, experiment_id: int) -> bool:
        experiments = self._models.SqlExperiment.__table__.c
        stage = connection.execute(
            select(experiments.lifecycle_stage).where(experiments.experiment_id == experiment_id)
        ).scalar()
        return stage == "active"

    def _stored(
        self, connection: Connection, trace_ids: Sequence[str], experiment_id: int
    ) -> tuple[set[str], set[str]]:
        """Those that are stored already, which are locked; of these, those in another experiment or an archive."""
        infos, tags = self._models.SqlTraceInfo.__table__.c, self._models.SqlTraceTag.__table__.c
        stored = select(infos.request_id, infos.experiment_id).where(infos.request_id.in_(trace_ids))
        locked = connection.execute(stored.order_by(infos.request_id).with_for_update()).all()
        if not locked:
            return set(), set()
        archived = select(tags.request_id).where(
            tags.request_id.in_([trace_id for trace_id, _ in locked]),
            tags.key == SPANS_LOCATION,
            tags.value != IN_DATABASE,
        )
        elsewhere = {trace_id for trace_id, experiment in locked if experiment != experiment_id}
        return {trace_id for trace_id, _ in locked}, elsewhere | set(connection.execute(archived).scalars())

    def _artifact_location(self, experiment_id: str, trace_id: str) -> str:
        experiment = self._artifacts[experiment_id]
        return str(self._store._get_trace_artifact_location_tag(experiment, trace_id).value)


def _flat(rows: Iterable[list[Row]]) -> list[Row]:
    return [row for some in rows for row in some]


def _revision(connection: Connection) -> str:
    revisions = connection.execute(text("SELECT version_num FROM alembic_version")).scalars()
    return ",".join(sorted(map(str, revisions)))


def _rollups() -> bool:
    """Sums by day are kept, which the store class invalidates."""
    try:
        rollups: Any = import_module("mlflow.store.tracking.utils.sql_trace_rollups")
    except ImportError:
        return False
    return bool(rollups.rollups_enabled())
