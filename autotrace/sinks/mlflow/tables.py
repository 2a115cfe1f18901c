"""Many trajectories into MLflow's tables in one transaction: a row is an item of a list, and a table one statement.

MLflow's store class merges row by row through its object mapper (3.7 ms of CPU a span). This writes the same rows
through the tables of the installed MLflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.dialects import postgresql, sqlite

from autotrace.sinks.mlflow.content import Contents
from autotrace.sinks.mlflow.rows import IN_DATABASE, SPANS_LOCATION, Row, Rows
from autotrace.sinks.mlflow.schema import SCHEMAS, Schema
from autotrace.sinks.mlflow.store import Delivery
from autotrace.sinks.protocol import Refused

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_KEPT_IF_ABSENT = frozenset({"request_preview", "response_preview", "session_id"})
"""Columns of ``trace_info`` whose value stays where there is no new one; the token counts are too."""
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
            elsewhere = self._elsewhere(connection, [delivery.description.trace_id for delivery, _ in rows], number)
            taken = [(delivery, spans) for delivery, spans in rows if delivery.description.trace_id not in elsewhere]
            left += [delivery for delivery, _ in rows if delivery.description.trace_id in elsewhere]
            if taken:
                self._write(connection, experiment_id, taken, run_id)
        return left

    def _write(
        self,
        connection: Connection,
        experiment_id: str,
        taken: Sequence[tuple[Delivery, list[Row]]],
        run_id: str | None,
    ) -> None:
        models, rows, number = self._models, self._rows, int(experiment_id)
        traces = [delivery.description for delivery, _ in taken]
        self._upsert(connection, models.SqlTraceInfo, [rows.info(trace, number) for trace in traces])
        tags = (rows.tags(trace, self._artifact_location(experiment_id, trace.trace_id)) for trace in traces)
        self._upsert(connection, models.SqlTraceTag, _flat(tags))
        self._upsert(connection, models.SqlTraceMetadata, _flat(map(rows.metadata, traces)))
        if self._schema.metrics:
            self._upsert(connection, models.SqlTraceMetrics, _flat(map(rows.metrics, traces)))
        self._upsert(connection, models.SqlSpan, _flat(spans for _, spans in taken))
        self._upsert(connection, models.SqlAssessments, _flat(rows.assessments(trace, number) for trace in traces))
        if run_id:
            links = [rows.link(trace, run_id) for trace in traces]
            insert = _INSERT[self._dialect](models.SqlEntityAssociation.__table__)
            connection.execute(insert.on_conflict_do_nothing(), links)

    def _upsert(self, connection: Connection, model: Any, rows: Sequence[Row]) -> None:
        if not rows:
            return
        table: Table = model.__table__
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

    def _elsewhere(self, connection: Connection, trace_ids: Sequence[str], experiment_id: int) -> set[str]:
        """Those that are stored already, in another experiment or an archive; locks the others."""
        infos, tags = self._models.SqlTraceInfo.__table__.c, self._models.SqlTraceTag.__table__.c
        stored = select(infos.request_id, infos.experiment_id).where(infos.request_id.in_(trace_ids))
        locked = connection.execute(stored.order_by(infos.request_id).with_for_update()).all()
        if not locked:
            return set()
        archived = select(tags.request_id).where(
            tags.request_id.in_([trace_id for trace_id, _ in locked]),
            tags.key == SPANS_LOCATION,
            tags.value != IN_DATABASE,
        )
        elsewhere = {trace_id for trace_id, experiment in locked if experiment != experiment_id}
        return elsewhere | set(connection.execute(archived).scalars())

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
