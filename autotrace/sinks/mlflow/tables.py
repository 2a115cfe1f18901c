"""Many trajectories into MLflow's tables in one transaction: a row is an item of a list, and a table one statement.

MLflow's store class merges row by row through its object mapper (3.7 ms of CPU a span), and takes seconds to import.
This writes the same rows into the tables as the database has them; those of traces that PostgreSQL does not have
yet by COPY.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

from mlflow import environment_variables
from sqlalchemy import JSON, Connection, Engine, MetaData, Table, func, inspect, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from autotrace.sinks.mlflow.info import SOURCE, Issue, TraceDescription
from autotrace.sinks.mlflow.rows import IN_DATABASE, SPANS_LOCATION, Contents, Row, Rows
from autotrace.sinks.mlflow.schema import SCHEMAS, Schema, installed_revision
from autotrace.sinks.mlflow.sending import Delivery
from autotrace.sinks.protocol import Refused

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_KEPT_IF_ABSENT = frozenset({"request_preview", "response_preview", "session_id"})
"""Columns of ``trace_info`` whose value stays where there is no new one; the token counts are too."""
Prepared = tuple[Delivery, list[Row]]
"""A trajectory and the rows of its spans."""
BUSY = 20_000
"""Milliseconds to wait for another writer, as MLflow does."""


DIALECTS = frozenset(_INSERT)
_uris: Any = import_module("mlflow.utils.uri")  # comes without types
_EXPERIMENTS, _INFOS, _TAGS, _METADATA, _METRICS = (
    "experiments", "trace_info", "trace_tags", "trace_request_metadata", "trace_metrics",
)  # fmt: skip
_SPANS, _ASSESSMENTS, _LINKS, _ISSUES = "spans", "assessments", "entity_associations", "issues"
_ACTIVE = "active"
_WORKSPACE = "default"
"""MLflow's workspace for everything, if workspaces are not used."""


class TableWriter:
    """Writes into MLflow's database. ``artifacts``: where the experiments that it creates keep theirs."""

    def __init__(self, engine: Engine, tables: MetaData, revision: str, schema: Schema, artifacts: str) -> None:
        self._engine = engine
        self._tables = tables.tables
        self._revision = revision
        self._schema = schema
        self._rows = Rows(schema, Contents(schema.ascii_only))
        self._dialect = engine.dialect.name
        self._copies = self._dialect == "postgresql" and engine.dialect.driver in DRIVERS
        self._artifacts = _uris.resolve_uri_if_local(artifacts)
        self._artifacts_of: dict[str, str] = {}

    @classmethod
    def of(cls, engine: Engine, artifacts: str) -> TableWriter | None:
        """None: MLflow's store class is to be used, because of the database's schema or a setting of MLflow's."""
        if _rollups():
            return None
        tables = MetaData()
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision = _revision(connection)
            schema = SCHEMAS.get(revision)
            if schema is None or revision != installed_revision():
                return None
            names = [_EXPERIMENTS, _INFOS, _TAGS, _METADATA, _SPANS, _ASSESSMENTS, _LINKS]
            names += [_METRICS] if schema.metrics else []
            names += [_ISSUES] if inspect(connection).has_table(_ISSUES) else []
            tables.reflect(connection, only=names, resolve_fks=False)
        return cls(engine, tables, revision, schema, artifacts)

    def experiment(self, name: str) -> tuple[str, bool]:
        """Id of the experiment ``name``, which is created if need be, and whether it is active.

        Raises ``Refused``, and SQLAlchemy's errors.
        """
        table = self._tables[_EXPERIMENTS]
        wanted = select(table.c.experiment_id, table.c.lifecycle_stage).where(table.c.name == name)
        if "workspace" in table.c:
            wanted = wanted.where(table.c.workspace == _WORKSPACE)
        with self._transaction() as connection:
            self._check(connection)
            known = connection.execute(wanted).one_or_none()
            if known is None:
                now = time.time_ns() // 1_000_000
                insert = _INSERT[self._dialect](table).on_conflict_do_nothing()
                times = {"creation_time": now, "last_update_time": now}
                connection.execute(insert, {"name": name, "lifecycle_stage": _ACTIVE, **times})
                known = connection.execute(wanted).one()
                place = _uris.append_to_uri_path(self._artifacts, str(known.experiment_id))
                own = (table.c.experiment_id == known.experiment_id) & table.c.artifact_location.is_(None)
                connection.execute(update(table).where(own).values(artifact_location=place))
        return str(known.experiment_id), known.lifecycle_stage == _ACTIVE

    def issue(self, experiment_id: str, issue: Issue) -> str | None:
        """Id of ``issue``, which is created if need be; None: the database has no issues."""
        if (table := self._tables.get(_ISSUES)) is None:
            return None
        own = {"experiment_id": int(experiment_id), "name": issue.name, "created_by": SOURCE}
        wanted = select(table.c.issue_id).where(*(table.c[name] == value for name, value in own.items()))
        with self._transaction() as connection:
            self._check(connection)
            known = connection.execute(wanted.order_by(table.c.created_timestamp).limit(1)).scalar()
            if known is None:
                now, known = time.time_ns() // 1_000_000, f"iss-{uuid.uuid4().hex}"
                row: Row = {"issue_id": known, "description": issue.description, "status": "pending"}
                row |= {"severity": issue.severity, "created_timestamp": now, "last_updated_timestamp": now}
                row |= {"root_causes": json.dumps(issue.root_causes), "categories": json.dumps(issue.categories)}
                connection.execute(table.insert(), {**row, **own})
        return str(known)

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
            infos = [self._rows.info(delivery.description, number) for delivery, _ in known]
            self._upsert(connection, self._tables[_INFOS], infos)
            self._write(connection, experiment_id, new, run_id, copy)
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
        tables, rows = self._tables, self._rows
        traces = [delivery.description for delivery, _ in taken]
        place = self._artifacts_in(connection, experiment_id)
        tags = (
            rows.tags(trace, _uris.append_to_uri_path(place, "traces", trace.trace_id, "artifacts")) for trace in traces
        )
        add(connection, tables[_TAGS], _flat(tags))
        add(connection, tables[_METADATA], _flat(map(rows.metadata, traces)))
        if self._schema.metrics:
            add(connection, tables[_METRICS], _flat(map(rows.metrics, traces)))
        add(connection, tables[_SPANS], _flat(spans for _, spans in taken))
        assessments = (rows.assessments(trace, int(experiment_id)) for trace in traces)
        add(connection, tables[_ASSESSMENTS], _flat(assessments))
        if run_id and traces:
            links = [rows.link(trace, run_id) for trace in traces]
            insert = _INSERT[self._dialect](tables[_LINKS])
            connection.execute(insert.on_conflict_do_nothing(), links)

    def _insert(self, connection: Connection, traces: Sequence[TraceDescription], experiment_id: int) -> set[str]:
        """Insert the rows of ``trace_info`` that are not there; the ids of those."""
        if not traces:
            return set()
        connection.execute(_LZ4)
        table = self._tables[_INFOS]
        insert = _INSERT[self._dialect](table).on_conflict_do_nothing().returning(table.c.request_id)
        infos = [self._rows.info(trace, experiment_id) for trace in traces]
        return set(connection.execute(insert, infos).scalars())

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
        with self._engine.connect() as connection:
            if self._dialect == "sqlite":
                for pragma in ("foreign_keys = ON", f"busy_timeout = {BUSY}"):
                    connection.exec_driver_sql(f"PRAGMA {pragma}")
                # takes the lock before anything is read: what was read stays true
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    def _active(self, connection: Connection, experiment_id: int) -> bool:
        experiments = self._tables[_EXPERIMENTS].c
        stage = connection.execute(
            select(experiments.lifecycle_stage).where(experiments.experiment_id == experiment_id)
        ).scalar()
        return stage == _ACTIVE

    def _stored(
        self, connection: Connection, trace_ids: Sequence[str], experiment_id: int
    ) -> tuple[set[str], set[str]]:
        """Those that are stored already, which are locked; of these, those in another experiment or an archive."""
        infos, tags = self._tables[_INFOS].c, self._tables[_TAGS].c
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

    def _artifacts_in(self, connection: Connection, experiment_id: str) -> str:
        if experiment_id not in self._artifacts_of:
            experiments = self._tables[_EXPERIMENTS].c
            wanted = select(experiments.artifact_location).where(experiments.experiment_id == int(experiment_id))
            self._artifacts_of[experiment_id] = str(connection.execute(wanted).scalar_one())
        return self._artifacts_of[experiment_id]


def _flat(rows: Iterable[list[Row]]) -> list[Row]:
    return [row for some in rows for row in some]


def _revision(connection: Connection) -> str:
    revisions = connection.execute(text("SELECT version_num FROM alembic_version")).scalars()
    return ",".join(sorted(map(str, revisions)))


def _rollups() -> bool:
    """Sums by day are kept, which the store class invalidates."""
    setting: Any = getattr(environment_variables, "MLFLOW_SQL_TRACE_ROLLUPS_ENABLED", None)
    return setting is not None and bool(setting.get())


DRIVERS = ("psycopg", "psycopg2")
"""Of SQLAlchemy's drivers those whose COPY is known here."""
AT_ONCE = 200
"""Rows that are put together at once: a transaction's take tens of megabytes in each form that they have on the way."""
_ABSENT = "\\N"
_LZ4 = text(
    "SELECT set_config('default_toast_compression', 'lz4', true) FROM pg_settings "
    "WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)"
)
"""For this transaction, long texts are compressed with lz4, which takes the server a fraction of the time, where it can
and nobody has chosen another way (PostgreSQL 14; what is stored already is not touched)."""


def copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add ``rows``, which have the same columns in the same order, to ``table``: rows of traces that this transaction
    has inserted, so no other writer can have any. Raises SQLAlchemy's errors, and ``UnicodeError``."""
    if not rows:
        return
    names = list(rows[0])
    quote = connection.dialect.identifier_preparer
    columns = ", ".join(map(quote.quote, names))
    statement = f"COPY {quote.format_table(table)} ({columns}) FROM STDIN"
    documents = [isinstance(table.c[name].type, JSON) for name in names]
    lines = ("\t".join(map(_field, row.values(), documents)) + "\n" for row in rows)
    driver: Any = connection.connection.driver_connection
    errors: Any = connection.dialect.dbapi
    try:
        with driver.cursor() as cursor:
            if connection.dialect.driver == "psycopg2":
                # here: an error while it reads would look as if the server were gone
                encodings = import_module("psycopg2.extensions").encodings
                cursor.copy_expert(statement, io.BytesIO("".join(lines).encode(encodings[driver.encoding])))
            else:
                with cursor.copy(statement) as into:
                    while some := "".join(islice(lines, AT_ONCE)):
                        into.write(some)
    except errors.Error as error:
        raise DBAPIError.instance(
            statement, None, error, errors.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


def _field(value: Any, document: bool) -> str:
    """In PostgreSQL's text format. ``document``: of a column of JSON."""
    if value is None and not document:
        return _ABSENT
    field = json.dumps(value) if document else str(value)
    return field.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
