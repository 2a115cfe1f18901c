"""Build a trajectory's rows in MLflow's tables, as ``start_trace`` and ``log_spans`` of MLflow's store class do.

The rows include the text of each span, made without the store class's intermediate objects. MLflow examines each span
before storing: MLflow adds the meaning of other tracers' attributes and the price of a known model, and each release
writes a different form. The module assumes nothing: the form is read off the installed release, and the first span of
every kind is compared with MLflow's form. A kind that MLflow would store differently is left to MLflow.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import msgspec

from autotrace.sinks.mlflow.info import SOURCE, TOKEN_USAGE, TRACE_NAME, Feedback, TraceDescription
from autotrace.sinks.mlflow.spans import JsonText, MlflowSpan

OURS = ("autotrace.", "mlflow.")
WORDS = frozenset({
    "agent", "cache_creation_tokens", "cache_read_tokens", "content", "diff", "events", "file_path", "full_command",
    "input", "input_tokens", "messages", "model", "name", "new_context", "output", "output_tokens", "provider",
    "response", "role", "skill_name", "span_type", "subagent_type", "system_prompt", "tool_input", "tools",
    "user_prompt",
})  # fmt: skip
"""Attributes without a dot in the name in which some release of MLflow reads another tracer's meaning."""
_MODEL = "mlflow.llm.model"
_PROBE = MlflowSpan("1" * 32, "2" * 16, "3" * 16, "probe", 1, 2, "OK", "", None, {})
_BLANKS = " \t\n\r"
_KINDS = 10_000
"""Limits the kinds of spans that are remembered."""


def quoted(value: str) -> str:
    """Quote ``value`` as ``json.dumps`` does without ``ensure_ascii``, in a fifth of the time."""
    try:
        return msgspec.json.encode(str(value)).decode()  # of a subclass, too
    except UnicodeEncodeError:
        return encode_basestring(value)


def json_text(value: str | int | bool) -> str:
    """Return an attribute as JSON, as a tracking server would. Text that is the JSON of a text, an object or a list
    counts as the decoded value."""
    if isinstance(value, JsonText):
        return value
    if not isinstance(value, str):
        return str(value).lower()
    encoded = quoted(value)
    while isinstance(value, str) and value.lstrip(_BLANKS)[:1] in ('"', "[", "{"):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            break
        encoded, value = value, inner
    return encoded


class Contents:
    """Describes the form of the installed MLflow."""

    def __init__(self, ascii_only: bool) -> None:
        from mlflow.entities import Span

        self._quoted = encode_basestring_ascii if ascii_only else quoted
        self.plain = False
        """Marks MLflow 3.5: ids unchanged, and no tag for the place of the spans."""
        self._from_dict: Callable[[dict[str, Any]], Any] = Span.from_dict
        self._to_dict = _stored_form()
        self._known: dict[tuple[Any, ...], bool] = {}
        self._constants = dict.fromkeys(self._values(_PROBE), "")
        form = self.entity(_PROBE).to_dict()
        self._constants = {name: json.dumps(value) for name, value in form.items()}
        self.plain = form["trace_id"].startswith("tr-")

    def entity(self, span: MlflowSpan) -> Any:
        """Convert ``span`` into MLflow's own ``Span``."""
        return self._from_dict(json.loads(self._text(span)))

    def text(self, span: MlflowSpan) -> str | None:
        """Return the text of the column ``content``; None: MLflow would store something other than the record."""
        content = self._text(span)
        return content if self._kept(span, content) else None

    def _text(self, span: MlflowSpan) -> str:
        """Return the span in the form and order of the installed MLflow's ``Span.to_dict``; ``Span.from_dict`` reads
        the text."""
        values = self._values(span)
        return _object([f'"{name}": {values.get(name, constant)}' for name, constant in self._constants.items()])

    def _values(self, span: MlflowSpan) -> dict[str, str]:
        """Return the values that differ from span to span, as JSON."""
        quote = self._quoted
        attributes = [f"{quote(name)}: {quote(json_text(value))}" for name, value in span.attributes.items()]
        attributes.append(f'"mlflow.traceRequestId": "\\"tr-{span.trace_id}\\""')
        id_of = _plain if self.plain else _base64
        code = span.status if self.plain else f"STATUS_CODE_{span.status}"
        return {
            "trace_id": id_of(f"tr-{span.trace_id}" if self.plain else span.trace_id),
            "span_id": id_of(span.span_id),
            "parent_span_id": id_of(span.parent_id) if span.parent_id else "null",
            "name": quote(span.name),
            "start_time_unix_nano": str(span.start_ns),
            "end_time_unix_nano": str(span.end_ns),
            "events": self._events(span),
            "status": _object([f'"code": "{code}"', f'"message": {quote(span.message)}']),
            "attributes": _object(attributes),
        }

    def _events(self, span: MlflowSpan) -> str:
        if span.exception is None:
            return "[]"
        values = zip(("type", "message", "stacktrace"), map(self._quoted, span.exception), strict=True)
        attributes = _object([f'"exception.{name}": {value}' for name, value in values])
        return f'[{{"name": "exception", "time_unix_nano": {span.end_ns}, "attributes": {attributes}}}]'

    def _kept(self, span: MlflowSpan, content: str) -> bool:
        """Tell whether MLflow stores ``content`` unchanged."""
        if _foreign(span):
            return self._stays(content)
        attributes = span.attributes
        kind = (
            span.status, span.parent_id is None, span.exception is None, attributes["mlflow.spanType"],
            attributes.get(_MODEL), str(attributes.get("mlflow.chat.tokenUsage", "")).endswith(":0}"), *attributes,
        )  # fmt: skip
        if kind not in self._known:
            if len(self._known) >= _KINDS:
                self._known.clear()
            self._known[kind] = self._stays(content)
        return self._known[kind]

    def _stays(self, content: str) -> bool:
        as_recorded = json.loads(content)
        return bool(self._to_dict(self._from_dict(as_recorded)) == as_recorded)


def _foreign(span: MlflowSpan) -> bool:
    """Tell whether the attributes, or a model in the arguments, may have a meaning for MLflow that depends on the
    values."""
    for name in span.attributes:
        if (name in WORDS or "." in name) and not name.startswith(OURS):
            return True
    if _MODEL in span.attributes:
        return False
    return any('"model"' in str(span.attributes.get(f"mlflow.span{part}", "")) for part in ("Inputs", "Outputs"))


def _object(members: Sequence[str]) -> str:
    return f"{{{', '.join(members)}}}"


def _stored_form() -> Callable[[Any], Any]:
    try:
        translation: Any = import_module("mlflow.tracing.otel.translation")
    except ImportError:  # MLflow 3.5 stores spans unchanged
        return lambda span: span.to_dict()
    form: Callable[[Any], Any] = translation.translate_span_when_storing
    return form


def _plain(id: str) -> str:
    return f'"{id}"'


def _base64(id: str) -> str:
    return f'"{base64.b64encode(bytes.fromhex(id)).decode()}"'


SPANS_LOCATION, IN_DATABASE = "mlflow.trace.spansLocation", "TRACKING_STORE"
"""Name of the tag for the place of a trace's spans; any other value: in an archive."""
_ANALYTICS = "mlflow.store.tracking.utils.trace_analytics"
Row = dict[str, Any]


class RowBuilder:
    """Makes rows for the installed MLflow and one schema. The tables themselves show how releases differ."""

    def __init__(self, tables: Mapping[str, Collection[str]]) -> None:
        """Take the columns of each table."""
        self._has_columns = "trace_name" in tables["trace_info"]
        """Tells whether name, session and token counts are columns of ``trace_info``, the model a column of ``spans``,
        and ``assessments`` have a number (since 3.17)."""
        self._has_metrics = "trace_metrics" in tables and not self._has_columns
        """Tells whether ``trace_metrics`` holds the token counts of a trace (MLflow 3.9 to 3.16)."""
        self._has_dimensions = "dimension_attributes" in tables["spans"]
        """Tells whether ``spans.dimension_attributes`` holds the model's name (3.10 to 3.16)."""
        self._has_generations = "db_payload_generation" in tables["trace_info"]
        """Tells whether ``trace_info`` counts the writes of spans, the archive's guard (since 3.13)."""
        # since 3.17 text in `spans.content` is not escaped, so that a search finds text
        self._contents = Contents(ascii_only=not self._has_columns)
        self._analytics: Any = import_module(_ANALYTICS) if self._has_columns else None
        keys: Any = import_module("mlflow.tracing.constant").TraceMetadataKey
        self._finalized: str | None = getattr(keys, "TRACE_INFO_FINALIZED", None)
        """Mark in the metadata that nothing more is computed from spans (since 3.12)."""

    def spans(self, spans: Sequence[MlflowSpan], experiment_id: int) -> list[Row] | None:
        """Return the rows of ``spans``; None: MLflow would store at least one span differently."""
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
        if self._has_dimensions:
            return {"dimension_attributes": json.dumps(None if model is None else {"mlflow.llm.model": model})}
        if self._has_columns:
            return {"model_name": None if model is None else self._analytics.bounded_model_dimension(model)}
        return {}

    def info(self, trace: TraceDescription, experiment_id: int) -> Row:
        """Return the row of ``trace_info``."""
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
        if self._has_generations:
            row["db_payload_generation"] = 1
        if self._has_columns:
            row["trace_name"] = trace.tags[TRACE_NAME]
            row |= dict.fromkeys(("session_id", *self._analytics.TOKEN_COLUMN_BY_KEY.values()))
            row |= self._analytics.analytics_columns_from_metadata(trace.metadata)
        return row

    def tags(self, trace: TraceDescription) -> list[Row]:
        """Return the rows of ``trace_tags`` that describe the trajectory."""
        tags = dict(trace.tags)
        if self._has_columns:
            del tags[TRACE_NAME]
        return _pairs(trace, tags)

    def places(self, trace: TraceDescription, artifacts: str) -> list[Row]:
        """Return the rows of ``trace_tags`` for the places of the trace's parts."""
        tags = {"mlflow.artifactLocation": artifacts}
        if not self._contents.plain:
            tags[SPANS_LOCATION] = IN_DATABASE
        return _pairs(trace, tags)

    def metadata(self, trace: TraceDescription) -> list[Row]:
        """Return the rows of ``trace_request_metadata``."""
        metadata = dict(trace.metadata)
        if self._has_columns:
            for name in self._analytics.PROMOTED_TRACE_METADATA_KEYS:
                metadata.pop(name, None)
        if self._finalized is not None:
            metadata[self._finalized] = "true"
        return _pairs(trace, metadata)

    def metrics(self, trace: TraceDescription) -> list[Row]:
        """Return the rows of ``trace_metrics``."""
        if not self._has_metrics or TOKEN_USAGE not in trace.metadata:
            return []
        return _pairs(trace, {name: float(count) for name, count in json.loads(trace.metadata[TOKEN_USAGE]).items()})

    def assessments(self, trace: TraceDescription, experiment_id: int, start_ms: int) -> list[Row]:
        """Return the rows of ``assessments``; ``start_ms`` is the value in the row of ``trace_info``."""
        return [self._assessment(trace, feedback, experiment_id, start_ms) for feedback in trace.feedback]

    def _assessment(self, trace: TraceDescription, feedback: Feedback, experiment_id: int, start_ms: int) -> Row:
        # MLflow's messages have a single kind of number
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
        if self._has_columns:
            number, numeric = self._analytics.assessment_aggregate(value)
            row |= {"experiment_id": experiment_id, "trace_timestamp_ms": start_ms}
            row |= {"aggregate_value": number, "is_numeric_value": numeric}
        return row

    @staticmethod
    def link(trace: TraceDescription, run_id: str) -> Row:
        """Return the row of ``entity_associations`` that links the trace to a run."""
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
