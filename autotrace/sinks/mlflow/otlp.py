"""Spans as an OTLP request, for a tracking server."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from autotrace.sinks.mlflow.spans import MlflowSpan

_CODES = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR, "UNSET": Status.STATUS_CODE_UNSET}


def request(spans: Iterable[MlflowSpan]) -> ExportTraceServiceRequest:
    """``spans`` as the server takes them."""
    made = ExportTraceServiceRequest()
    add = made.resource_spans.add().scope_spans.add().spans.add
    for span in spans:
        _fill(add(), span)
    return made


def _fill(otlp_span: OtlpSpan, span: MlflowSpan) -> None:
    """In place: to make the messages first and put them together then takes twice as long."""
    otlp_span.trace_id = bytes.fromhex(span.trace_id)
    otlp_span.span_id = bytes.fromhex(span.span_id)
    otlp_span.parent_span_id = bytes.fromhex(span.parent_id or "")
    otlp_span.name = span.name
    otlp_span.start_time_unix_nano = span.start_ns
    otlp_span.end_time_unix_nano = span.end_ns
    otlp_span.status.code = _CODES[span.status]
    otlp_span.status.message = span.message
    add = otlp_span.attributes.add
    for name, value in span.attributes.items():
        if isinstance(value, str):
            add(key=name).value.string_value = value
        elif isinstance(value, bool):
            add(key=name).value.bool_value = value
        else:
            add(key=name).value.int_value = value
    if span.exception is not None:
        event = otlp_span.events.add(name="exception", time_unix_nano=span.end_ns)
        for name, value in zip(("type", "message", "stacktrace"), span.exception, strict=True):
            event.attributes.add(key=f"exception.{name}").value.string_value = value
