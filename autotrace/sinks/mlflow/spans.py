"""A trajectory as OTLP spans that MLflow understands: its reserved attributes as JSON text, ids and times as recorded.

JSON text in string attributes is what its server unpacks cheapest (one value a token would cost 3 ms a call).
"""

from __future__ import annotations

from typing import Any

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status as OtlpStatus

from autotrace.sinks import payload
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import OK, OPEN, Span, Trajectory

SPAN_TYPES = {
    "trajectory": "AGENT",
    "agent": "AGENT",
    "llm": "CHAT_MODEL",
    "engine": "LLM",
    "tool": "TOOL",
    "parser": "PARSER",
    "env": "TASK",
    "reward": "EVALUATOR",
    "trainer": "WORKFLOW",
}
"""Role -> MLflow's span type; others are UNKNOWN."""
_CHAT_ROLES = ("system", "user", "assistant", "tool")
UNKNOWN_ROLE = "history"
"""What of a conversation may be anybody's (``ship.assembly.markup``)."""
_RESERVED = ("mlflow.", "session.id", "user.id")


def encode(trajectory: Trajectory) -> list[OtlpSpan]:
    """All spans of ``trajectory``; name, tags and session of the trace are with ``info.describe``."""
    return [_span(trajectory, span) for span in trajectory.spans]


def _span(trajectory: Trajectory, span: Span) -> OtlpSpan:
    otlp_span = OtlpSpan(
        trace_id=bytes.fromhex(trajectory.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id) if span.parent_id else b"",
        name=text(span.shown_name),
        start_time_unix_nano=max(0, span.start_ns),
        end_time_unix_nano=max(0, payload.end_of(trajectory, span)),
    )
    _status(otlp_span, span)
    _put(otlp_span, "mlflow.spanType", SPAN_TYPES.get(span.role, "UNKNOWN"))
    _put_json(otlp_span, "mlflow.spanInputs", _inputs(span))
    _put_json(otlp_span, "mlflow.spanOutputs", _outputs(trajectory, span))
    for name, value in _own_attributes(trajectory, span).items():
        if value is not None:
            _put_json(otlp_span, name, value)
    for name, value in span.attributes.items():
        if not name.startswith(_RESERVED) and value is not None:
            _put_json(otlp_span, text(name)[:250], payload.jsonable(value))
    return otlp_span


def _status(otlp_span: OtlpSpan, span: Span) -> None:
    if span.status == OK:
        otlp_span.status.code = OtlpStatus.STATUS_CODE_OK
        return
    if span.status == OPEN:
        return
    otlp_span.status.code = OtlpStatus.STATUS_CODE_ERROR
    otlp_span.status.message = payload.failure(span) or span.status
    if span.error is not None:
        event = otlp_span.events.add(name="exception", time_unix_nano=max(0, span.end_ns or span.start_ns))
        for name, value in zip(("type", "message", "stacktrace"), span.error, strict=True):
            event.attributes.append(KeyValue(key=f"exception.{name}", value=AnyValue(string_value=text(value))))


def _inputs(span: Span) -> Any:
    inputs = payload.jsonable(span.inputs)
    if span.role != "llm":
        return inputs
    messages = [_chat(message) for message in payload.turn(span).messages]
    return {**inputs, "messages": messages} if messages else inputs


def _outputs(trajectory: Trajectory, span: Span) -> Any:
    output = payload.jsonable(span.output)
    if span.role == "llm":
        reply = payload.turn(span).reply
        if reply is None:
            return output
        choices = [{"index": 0, "message": _chat(reply), "finish_reason": _finish_reason(span)}]
        return {**_named(output), "choices": choices}
    texts = payload.texts(trajectory, span) if span.role == "agent" or span is trajectory.root else {}
    facts = payload.jsonable(trajectory.facts) if span is trajectory.root else {}
    return {**_named(output), **facts, **texts} if facts or texts else output


def _finish_reason(span: Span) -> Any:
    reason = span.attributes.get("stop_reason") or span.attributes.get("finish_reason")
    return reason or ("stop" if span.status == OK else None)


def _named(output: Any) -> dict[str, Any]:
    """An output as a mapping, so that more can stand beside it."""
    if isinstance(output, dict):
        return output
    return {} if output is None else {"result": output}


def _chat(message: dict[str, Any]) -> dict[str, Any]:
    """A message that MLflow's chat view takes: it knows four roles and wants text. Words that may be the model's are
    not shown as the user's."""
    role = message.get("role")
    if role == UNKNOWN_ROLE:
        role = "system"
    content = message.get("content")
    shown = {**message, "role": role if role in _CHAT_ROLES else "user"}
    shown["content"] = content if isinstance(content, (str, list)) or content is None else str(content)
    return shown


def _own_attributes(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    """MLflow's token usage, and ours: token ids as text, from which ``tokens.token_ids`` rebuilds the lists."""
    own: dict[str, Any] = {"autotrace.role": span.role, "autotrace.status": span.status, "autotrace.key": span.key}
    if span.role == "llm":
        used = usage(span)
        if used is not None:
            own["mlflow.chat.tokenUsage"] = used
        own["mlflow.message.format"] = "openai"
        own["mlflow.llm.model"] = payload.model_name(trajectory, span)
        own["autotrace.prompt_base"] = span.prompt_base
        own["autotrace.prompt_keep"] = span.prompt_keep if span.prompt_base else None
        own["autotrace.logprobs"] = payload.packed_floats(span.logprobs) if span.logprobs else None
        if span.new_prompt_ids is not None:
            own["autotrace.new_prompt_ids"] = payload.packed(span.new_prompt_ids)
        if span.response_ids is not None:
            own["autotrace.response_ids"] = payload.packed(span.response_ids)
    if span.response_mask is not None and span.role != "engine":
        own["autotrace.response_mask"] = payload.runs(span.response_mask)
    own["autotrace.prompt_tokens"], own["autotrace.response_tokens"] = span.prompt_tokens, span.response_tokens
    own |= {f"autotrace.{name}": payload.jsonable(value) for name, value in payload.measured(span).items()}
    own["autotrace.first_item_ns"] = span.first_item_ns
    own["autotrace.name"] = text(span.name) if span.title else None
    own["autotrace.process"] = f"{span.host}:{span.pid}" if span.pid else None
    if span is trajectory.root and trajectory.notes:
        own["autotrace.notes"] = trajectory.notes
    return own


def usage(span: Span) -> dict[str, int] | None:
    """Token usage of one LLM call in MLflow's words."""
    if span.prompt_tokens is None and span.response_tokens is None:
        counts = payload.usage(span)
        if counts is None:
            return None
        read, written = counts
    else:
        read, written = span.prompt_tokens or 0, span.response_tokens or 0
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


def _put(otlp_span: OtlpSpan, name: str, value: str) -> None:
    otlp_span.attributes.append(KeyValue(key=name, value=AnyValue(string_value=value)))


def _put_json(otlp_span: OtlpSpan, name: str, value: Any) -> None:
    """Text as it is, everything else as JSON text."""
    if value is None:
        return
    if isinstance(value, bool):
        otlp_span.attributes.append(KeyValue(key=name, value=AnyValue(bool_value=value)))
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        otlp_span.attributes.append(KeyValue(key=name, value=AnyValue(int_value=value)))
    else:
        _put(otlp_span, name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
