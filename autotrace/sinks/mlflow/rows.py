"""Rows of a trajectory in MLflow's tables: what ``start_trace`` and ``log_spans`` of its store class leave there."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from autotrace.sinks.mlflow.content import Contents
from autotrace.sinks.mlflow.info import SOURCE, TOKEN_USAGE, TRACE_NAME, Feedback, TraceDescription
from autotrace.sinks.mlflow.schema import Schema
from autotrace.sinks.mlflow.spans import MlflowSpan

SPANS_LOCATION, IN_DATABASE = "mlflow.trace.spansLocation", "TRACKING_STORE"
"""The tag that says where a trace's spans are; any other value: in an archive."""
_ANALYTICS = "mlflow.store.tracking.utils.trace_analytics"
Row = dict[str, Any]


class Rows:
    """Makes rows for one schema and the installed MLflow."""

    def __init__(self, schema: Schema, contents: Contents) -> None:
        self._schema = schema
        self._contents = contents
        self._analytics: Any = import_module(_ANALYTICS) if schema.columns else None

    def spans(self, spans: Sequence[MlflowSpan], experiment_id: int) -> list[Row] | None:
        """Rows of ``spans``; None: MLflow would store one of them in its own way."""
        rows: list[Row] = []
        for span in spans:
            content = self._contents.text(span)
            if content is None:
                return None
            rows.append({
                "trace_id": f"tr-{span.trace_id}",
                "experiment_id": experiment_id,
                "span_id": span.span_id,
                "parent_span_id": span.parent_id,
                "name": span.name,
                "type": span.attributes["mlflow.spanType"],
                "status": span.status,
                "start_time_unix_nano": span.start_ns,
                "end_time_unix_nano": span.end_ns,
                "content": content,
                **self._model(span),
            })  # fmt: skip
        return rows

    def _model(self, span: MlflowSpan) -> Row:
        model = span.attributes.get("mlflow.llm.model")
        if self._schema.dimensions:
            return {"dimension_attributes": None if model is None else {"mlflow.llm.model": model}}
        if self._schema.columns:
            return {"model_name": None if model is None else self._analytics.bounded_model_dimension(model)}
        return {}

    def info(self, trace: TraceDescription, experiment_id: int) -> Row:
        """The row of ``trace_info``."""
        row: Row = {
            "request_id": trace.trace_id,
            "experiment_id": experiment_id,
            "timestamp_ms": trace.start_ms,
            "execution_time_ms": trace.duration_ms,
            "status": trace.state,
            "client_request_id": None,
            "request_preview": trace.request_preview,
            "response_preview": trace.response_preview,
        }
        if self._schema.generations:
            row["db_payload_generation"] = 1
        if self._schema.columns:
            row["trace_name"] = trace.tags[TRACE_NAME]
            row |= dict.fromkeys(("session_id", *self._analytics.TOKEN_COLUMN_BY_KEY.values()))
            row |= self._analytics.analytics_columns_from_metadata(trace.metadata)
        return row

    def tags(self, trace: TraceDescription, artifacts: str) -> list[Row]:
        """Rows of ``trace_tags``."""
        tags = {**trace.tags, "mlflow.artifactLocation": artifacts}
        if not self._contents.plain:
            tags[SPANS_LOCATION] = IN_DATABASE
        if self._schema.columns:
            del tags[TRACE_NAME]
        return _pairs(trace, tags)

    def metadata(self, trace: TraceDescription) -> list[Row]:
        """Rows of ``trace_request_metadata``."""
        metadata = dict(trace.metadata)
        if self._schema.columns:
            for name in self._analytics.PROMOTED_TRACE_METADATA_KEYS:
                metadata.pop(name, None)
        if self._schema.finalized:
            metadata["mlflow.trace.infoFinalized"] = "true"
        return _pairs(trace, metadata)

    def metrics(self, trace: TraceDescription) -> list[Row]:
        """Rows of ``trace_metrics``."""
        if not self._schema.metrics or TOKEN_USAGE not in trace.metadata:
            return []
        return _pairs(trace, {name: float(count) for name, count in json.loads(trace.metadata[TOKEN_USAGE]).items()})

    def assessments(self, trace: TraceDescription, experiment_id: int) -> list[Row]:
        """Rows of ``assessments``."""
        return [self._assessment(trace, feedback, experiment_id) for feedback in trace.feedback]

    def _assessment(self, trace: TraceDescription, feedback: Feedback, experiment_id: int) -> Row:
        # MLflow's messages know one kind of number
        value: Any = float(feedback.value) if type(feedback.value) is int else feedback.value
        if feedback.issue is not None:
            value = {"issue_name": feedback.issue}
        row: Row = {
            "assessment_id": feedback.id,
            "trace_id": trace.trace_id,
            "name": feedback.name,
            "assessment_type": feedback.kind,
            "value": json.dumps(value),
            "error": None,
            "rationale": feedback.rationale,
            "span_id": feedback.span_id,
            "created_timestamp": trace.end_ms,
            "last_updated_timestamp": trace.end_ms,
            "source_type": "CODE",
            "source_id": SOURCE,
            "valid": True,
        }
        if self._schema.columns:
            number, numeric = self._analytics.assessment_aggregate(value)
            row |= {"experiment_id": experiment_id, "trace_timestamp_ms": trace.start_ms}
            row |= {"aggregate_value": number, "is_numeric_value": numeric}
        return row

    @staticmethod
    def link(trace: TraceDescription, run_id: str) -> Row:
        """The row of ``entity_associations`` that links the trace to a run."""
        return {
            "association_id": uuid.uuid4().hex,
            "source_type": "trace",
            "source_id": trace.trace_id,
            "destination_type": "run",
            "destination_id": run_id,
            "created_time": time.time_ns() // 1_000_000,
        }


def _pairs(trace: TraceDescription, values: Mapping[str, Any]) -> list[Row]:
    return [{"request_id": trace.trace_id, "key": name, "value": value} for name, value in sorted(values.items())]
