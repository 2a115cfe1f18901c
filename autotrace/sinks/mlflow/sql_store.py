"""Write to any SQL store of MLflow without a server: through MLflow's store class, or ``own_file`` for our own file."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from typing import Any, TypeVar

from autotrace.sinks.mlflow.info import SOURCE, Issue, TraceDescription
from autotrace.sinks.mlflow.own_file import OwnFile, release
from autotrace.sinks.mlflow.rows import Contents
from autotrace.sinks.mlflow.sending import MAX_LINKED, MlflowTrace, StoreError, deleted, put_text
from autotrace.sinks.mlflow.spans import MlflowSpan
from autotrace.sinks.mlflow.uri import artifact_root, initialise, sqlite_path, store_class
from autotrace.sinks.protocol import Refused, Unavailable

T = TypeVar("T")
MAX_TRACES = 1_000
"""Limits the traces of a transaction: short transactions are written several times as fast."""
_PASSING = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")


class SqlStore:
    """Writes to the store at ``uri``; creates a missing SQLite file. Raises ``Refused`` when MLflow cannot open the
    store."""

    def __init__(self, uri: str) -> None:
        # MLflow prints whole statements, prompts included
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        opened = store_class()
        from sqlalchemy import event
        from sqlalchemy.exc import OperationalError

        self._path = sqlite_path(uri)
        try:
            initialise(uri)
            self._store: Any = opened(uri, artifact_root(self._path) if self._path else "mlflow-artifacts:/")
            if self._path:
                # synchronous=NORMAL loses the last commits on a power cut only, and doubles the rate of small
                # transactions
                event.listen(self._store.engine, "connect", _faster)
                self._store.engine.dispose()
            self._own = OwnFile.at(self._path)
        except OperationalError as error:
            raise Unavailable(f"the MLflow store cannot be opened: {_sentence(error.orig)}") from error
        except ValueError as error:
            raise Refused(str(error)) from error
        except Exception as error:
            raise Refused(f"MLflow cannot open its store: {_sentence(error)}") from error
        self._experiments: dict[str, str] = {}
        self._contents = Contents(ascii_only=True)

    def experiment_id(self, name: str) -> str:
        """See ``Store``."""
        if name not in self._experiments:
            self._experiments[name] = self._do(self._get_or_create, name)
        return self._experiments[name]

    def _get_or_create(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        experiment = self._store.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._store.create_experiment(name))
            except MlflowException:  # another process has created the experiment
                experiment = self._store.get_experiment_by_name(name)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage == "deleted":
            raise deleted(name, str(experiment.experiment_id))
        return str(experiment.experiment_id)

    def issue(self, experiment_id: str, issue: Issue) -> str | None:
        """See ``Store``."""
        return self._do(self._issue, experiment_id, issue) if hasattr(self._store, "create_issue") else None

    def _issue(self, experiment_id: str, issue: Issue) -> str:
        from mlflow.entities.issue import IssueSeverity

        for known in self._store.search_issues(experiment_id=experiment_id):
            if known.name == issue.name and known.created_by == SOURCE:
                return str(known.issue_id)
        made = self._store.create_issue(
            experiment_id, issue.name, issue.description, severity=IssueSeverity(issue.severity),
            root_causes=list(issue.root_causes), categories=list(issue.categories), created_by=SOURCE,
        )  # fmt: skip
        return str(made.issue_id)

    @property
    def max_traces(self) -> int:
        """See ``Store``."""
        return MAX_LINKED if self._own is None else MAX_TRACES

    @property
    def adds_usage(self) -> bool:
        """See ``Store``."""
        return (3, 6) <= release() < (3, 12)

    def write(self, experiment_id: str, deliveries: Sequence[MlflowTrace], run_id: str | None) -> Sequence[MlflowTrace]:
        """See ``Store``."""
        return deliveries if self._own is None else self._own.write(experiment_id, deliveries, run_id)

    def log_spans(self, experiment_id: str, spans: Sequence[MlflowSpan], run_id: str | None) -> None:
        """See ``Store``."""
        try:
            mlflow_spans = [self._contents.entity(span) for span in spans]
        except Exception as error:
            raise StoreError(_sentence(error)) from error
        self._do(lambda: self._store.log_spans(experiment_id, mlflow_spans))
        if run_id:
            traces = sorted({f"tr-{span.trace_id}" for span in spans if span.parent_id is None})
            for start in range(0, len(traces), MAX_LINKED):
                self._do(self._link, set(traces[start : start + MAX_LINKED]), run_id)

    def _link(self, traces: set[str], run_id: str) -> None:
        """Link traces to a run, except linked traces, at which MLflow 3.5 fails."""
        from mlflow.store.tracking.dbmodels.models import SqlEntityAssociation
        from sqlalchemy import select

        links: Any = SqlEntityAssociation
        linked = select(links.source_id).where(
            links.source_type == "trace", links.source_id.in_(traces), links.destination_id == run_id
        )
        with self._store.engine.connect() as connection:
            traces = traces - {row[0] for row in connection.execute(linked)}
        self._store.link_traces_to_run(sorted(traces), run_id)

    def start_trace(self, experiment_id: str, trace: TraceDescription) -> None:
        """See ``Store``."""
        info = self._info(experiment_id, trace)
        self._do(lambda: self._store.start_trace(info))

    def learn(self, experiment_id: str, traces: Sequence[TraceDescription]) -> None:
        """See ``Store``."""
        if self._own is not None:
            self._own.learn(experiment_id, traces)
            return
        for trace in traces:
            told, stored = self._info(experiment_id, trace), self._do(self._store.get_trace_info, trace.trace_id)
            stored.tags.update(told.tags)
            stored.assessments = told.assessments
            self._do(self._store.start_trace, stored)

    def _info(self, experiment_id: str, trace: TraceDescription) -> Any:
        """Convert ``trace`` into MLflow's ``TraceInfo``."""
        from mlflow.entities import TraceInfo
        from mlflow.protos.service_pb2 import TraceInfoV3

        json_format: Any = import_module("google.protobuf.json_format")  # comes without types
        try:
            return TraceInfo.from_proto(json_format.ParseDict(trace.message(experiment_id), TraceInfoV3()))
        except Exception as error:
            raise StoreError(_sentence(error)) from error

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int, at_ms: int) -> None:
        """See ``Store``."""
        from mlflow.entities import Metric

        stored = [Metric(name, metrics[name], at_ms, step) for name in metrics]
        self._do(lambda: self._store.log_batch(run_id, stored, [], []))

    def log_text(self, run_id: str, path: str, text: str) -> None:
        """See ``Store``."""
        put_text(self._do(lambda: self._store.get_run(run_id)).info.artifact_uri, path, text)

    def _do(self, call: Callable[..., T], *args: Any) -> T:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import OperationalError, SQLAlchemyError

        try:
            return call(*args)
        except MlflowException as error:
            if error.error_code in _PASSING:
                raise Unavailable("the MLflow store is busy or cannot be written") from error
            self._experiments.clear()
            raise StoreError(_sentence(error), passing=error.error_code == "INTERNAL_ERROR") from error
        except OperationalError as error:
            raise Unavailable(f"the MLflow store cannot be written: {_sentence(error.orig)}") from error
        except (SQLAlchemyError, UnicodeError, ValueError, TypeError, RecursionError) as error:
            raise StoreError(_sentence(error)) from error

    def page(self, experiment_id: str, trace_id: str) -> str | None:
        """Return None: a store has no page; ``uri.ui_command`` makes a page."""
        return None

    def close(self) -> None:
        """See ``Store``."""
        self._store.engine.dispose()
        if self._path:
            # Without statistics SQLite takes the wrong index for searches in span text: 40 s instead of 45 ms at 4,000
            # traces. The limit keeps this at milliseconds for a store of any size.
            with suppress(sqlite3.Error), closing(sqlite3.connect(self._path, timeout=5.0)) as db:
                db.execute("PRAGMA analysis_limit=1000")
                db.execute("ANALYZE")


def _faster(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


def _sentence(error: BaseException | None) -> str:
    """Return the first line of the error, without SQLAlchemy's statement; the database's next lines may quote stored
    data."""
    return (str(error).splitlines() or [type(error).__name__])[0].split("[SQL:")[0][:300]
