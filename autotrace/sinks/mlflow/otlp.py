"""Spans as OTLP messages, for a tracking server."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from autotrace.sinks.mlflow.spans import MlflowSpan

_CODES = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR, "UNSET": Status.STATUS_CODE_UNSET}


def message(span: MlflowSpan) -> OtlpSpan:
    """``span`` as the server takes it."""
    otlp_span = OtlpSpan(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=span.name,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        status=Status(code=_CODES[span.status], message=span.message),
        attributes=[KeyValue(key=name, value=_value(value)) for name, value in span.attributes.items()],
    )
    if span.exception is not None:
        event = otlp_span.events.add(name="exception", time_unix_nano=span.end_ns)
        for name, value in zip(("type", "message", "stacktrace"), span.exception, strict=True):
            event.attributes.append(KeyValue(key=f"exception.{name}", value=AnyValue(string_value=value)))
    return otlp_span


def _value(value: str | int | bool) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(bool_value=value) if isinstance(value, bool) else AnyValue(int_value=value)
