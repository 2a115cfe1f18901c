"""Read exported spans: OpenTelemetry's JSON with GenAI attributes, MLflow's traces, and Langfuse's observations.

- OpenTelemetry: OTLP's JSON encoding, a batch a file or a line (the collector's file exporter), with the GenAI semantic
  conventions 1.37 or later, OpenInference's ``input.value`` and ``output.value``, or OpenLLMetry's attribute for each
  value of a message (``gen_ai.prompt.0.content``).
- MLflow 2 and 3: ``Trace.to_json()``, ``mlflow traces search --output json``, and ``search_traces().to_json(orient=
  "records")``.
- Langfuse (``langfuse/api/resources/commons/types`` of 3.15): traces with their observations, or observations alone.

A trace without a model's call yields nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from autotrace.foreign.atif import IDENTITY
from autotrace.foreign.collector import SpanCollector, listed, mapped, moment, objects, plain
from autotrace.foreign.containers import BESIDE, SPREAD, Format, names
from autotrace.foreign.opened import Row
from autotrace.foreign.spellings import first, messages, parsed, spoken
from autotrace.trajectory.jsonable import integer, known, number
from autotrace.trajectory.markup import Message
from autotrace.trajectory.model import ERROR, Span, Trajectory
from autotrace.trajectory.span_text import one_line

_NAMES: Mapping[str, tuple[str, ...]] = {
    "trace": ("traceId", "trace_id"), "id": ("spanId", "span_id", "id"),
    "parent": ("parentSpanId", "parent_span_id", "parentObservationId", "parent_id"),
    "kind": ("gen_ai.operation.name", "openinference.span.kind", "mlflow.spanType", "llm.request.type",
             "traceloop.span.kind", "type"),
    "start": ("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time"),
    "end": ("endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time"),
    "inputs": ("gen_ai.input.messages", "gen_ai.tool.call.arguments", "mlflow.spanInputs", "input.value",
               "traceloop.entity.input", "input"),
    "output": ("gen_ai.output.messages", "gen_ai.tool.call.result", "mlflow.spanOutputs", "output.value",
               "traceloop.entity.output", "output"),
    "model": ("gen_ai.response.model", "gen_ai.request.model", "mlflow.llm.model", "llm.model_name", "model"),
    "name": ("name",), "tool": ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "name"),
    "call": ("gen_ai.tool.call.id", "tool_call.id"), "usage": ("mlflow.chat.tokenUsage", "usageDetails"),
    "prompt": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
               "usage.input_tokens", "usage.input"),
    "response": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
                 "usage.output_tokens", "usage.output"),
    "session_id": ("gen_ai.conversation.id", "session.id", "sessionId", "mlflow.trace.session"),
    "score": ("gen_ai.evaluation.name", "assessment_name", "name"),
    "value": ("gen_ai.evaluation.score.value", "value"),
}  # fmt: skip
"""Name here -> names of the exports, in the order of preference."""
_ROLES = {
    "llm": "llm", "chat": "llm", "text_completion": "llm", "generate_content": "llm", "chat_model": "llm",
    "generation": "llm", "execute_tool": "tool", "tool": "tool", "invoke_agent": "agent", "agent": "agent",
}  # fmt: skip
"""Kind of a span, in lower case -> role."""
_FAILED = (2, "STATUS_CODE_ERROR", "ERROR")


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    traces: dict[str, tuple[Row, list[Row]]] = {}
    for part in objects(row.get(BESIDE)) or [row]:
        for about, spans in _lists(part):
            for span in spans:
                of = {**_attributes(span.get("attributes")), **mapped(span, "context"), **span}
                of |= {f"usage.{name}": value for name, value in mapped(parsed(_of(of, "usage"))).items()}
                traces.setdefault(str(_of(of, "trace")), (about, []))[1].append(of)
                about = {}  # belongs to the first trace alone
    for id, (about, spans) in traces.items():
        if any(_role(span) == "llm" for span in spans):
            yield _trace(id, about, sorted(spans, key=lambda span: _time(span, "start") or 0))


def _lists(row: Row) -> Iterator[tuple[Row, list[Row]]]:
    """Yield lists of spans, each with the names and values of the trace."""
    row = mapped(parsed(row.get("trace"))) or row
    for one in objects(row.get("traces")):
        yield from _lists({**one, "traces": None})
    for of in objects(row.get("resourceSpans")):
        yield from (({}, objects(scope.get("spans"))) for scope in objects(of.get("scopeSpans")))
    about = mapped(row, "info") or row
    about = {**about, **mapped(about, "trace_metadata"), **mapped(parsed(about.get("metadata")))}
    yield about, objects(row.get("observations")) or objects(mapped(row, "data").get("spans"))
    yield {}, objects(row.get("data")) or [row] * (SPREAD[1] <= row.keys())


_INDEXED = re.compile(r"(?:gen_ai|llm)\.(prompt|completion|input_messages|output_messages)\.(\d{1,6})\.(?:message\.)?"
                      r"(?:tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?)?(\w+)\Z")  # fmt: skip
"""Matches an attribute for each value of a message: OpenLLMetry's, and OpenInference's."""


def _indexed(given: Row) -> Row:
    """Return the messages that have an attribute for each value."""
    sides: dict[str, dict[int, Row]] = {}
    calls: dict[tuple[str, int], dict[int, Row]] = {}
    for match, value in ((_INDEXED.match(name), value) for name, value in given.items()):
        if match is not None:
            side = f"gen_ai.{'output' if match[1].startswith(('completion', 'output')) else 'input'}.messages"
            message = sides.setdefault(side, {}).setdefault(at := int(match[2]), {})
            if match[3] is not None:
                message = calls.setdefault((side, at), {}).setdefault(int(match[3]), {})
            message[match[4]] = value
    for (side, at), own in calls.items():
        sides[side][at]["tool_calls"] = [*own.values()]
    return {side: [messages[at] for at in sorted(messages)] for side, messages in sides.items()}


def _attributes(given: Any) -> Row:
    if isinstance(given, list):
        found = {str(pair.get("key")): _value(mapped(pair, "value")) for pair in objects(given)}
        return {**_indexed(found), **found}
    return {name: parsed(value) if name.startswith("mlflow.") else value for name, value in mapped(given).items()}


def _value(given: Row) -> Any:
    """Convert OTLP's ``AnyValue``."""
    kind, value = next(iter(given.items()), ("", None))
    within = mapped(value).get("values")
    return [_value(one) for one in objects(within)] if kind == "arrayValue" else _attributes(within) or value


def _of(span: Row, name: str) -> Any:
    return first(span, _NAMES[name])


def _role(span: Row) -> str:
    return _ROLES.get(str(_of(span, "kind")).lower(), "span")


def _time(span: Row, name: str) -> int | None:
    """Return a time in nanoseconds. Times are nanoseconds, also as text, or ISO 8601."""
    at = integer(_of(span, name))
    return moment(_of(span, name)) if at is None else at if 0 < at < 1 << 62 else None


def _trace(id: str, about: Row, spans: list[Row]) -> Trajectory:
    """Build a rollout. A single span above all others is the root."""
    ids = {str(_of(one, "id")) for one in spans}
    tops = [one for one in spans if str(_of(one, "parent")) not in ids]
    root = tops[0] if len(tops) == 1 and _role(tops[0]) not in ("llm", "tool") else {}
    calls = SpanCollector("spans", _time(spans[0], "start"), max(_time(one, "end") or 0 for one in spans) or None)
    calls.root.name = one_line(root.get("name") or "spans")
    made: dict[str, Span] = {}
    scores = [*objects(about.get("scores")), *objects(about.get("assessments"))]
    for one in spans:
        above, role = made.get(str(_of(one, "parent")), calls.root), _role(one)
        name, start = one_line(_of(one, role if role == "tool" else "name") or role), _time(one, "start")
        if role == "llm" and above.role != "llm":
            span = _turn(calls, one, start)
        elif role == "tool":
            span = calls.requested(name, _of(one, "call"), start)
        else:
            span = calls.root if one is root else calls.call(name, role.replace("llm", "span"), start)
        if span is None:
            break
        made[str(_of(one, "id"))], span.end_ns = span, _time(one, "end")
        span.parent_id = None if span is calls.root else above.span_id
        if span.role != "llm":
            inputs, span.output = parsed(_of(one, "inputs")), parsed(_of(one, "output"))
            span.inputs = (inputs if isinstance(inputs, dict) else known({"input": inputs})) or span.inputs
        status = mapped(one, "status")
        if status.get("code", first(one, ("status_code", "level"))) in _FAILED:
            told = one_line(status.get("message") or one.get("statusMessage") or "")
            span.status, span.error = ERROR, (one_line(one.get("error.type") or "error"), told, "")
        events = (event for event in objects(one.get("events")) if event.get("name") == "gen_ai.evaluation.result")
        scores += [_attributes(event.get("attributes")) for event in events]
    parts = {one_line(_of(one, "score")): _of({**one, **mapped(one, "feedback")}, "value") for one in scores}
    reward = parts.get("reward", next((value for value in parts.values() if number(value) is not None), None))
    attributes = {name: parsed(first({**about, **root}, (name, f"autotrace.{name}"))) for name in IDENTITY}
    attributes |= {"session_id": _of({**about, **root}, "session_id"), "exported_trace_id": id}
    return calls.trajectory(attributes, {"reward": reward, "reward_extra_info": parts if len(parts) > 1 else None})


def _turn(calls: SpanCollector, span: Row, start: int | None) -> Span | None:
    system = listed(parsed(span.get("gen_ai.system_instructions")))
    said = [*_plain([{"role": "system", "parts": system}] if system else []), *_said(span, "inputs", "user")]
    for message in said:
        if message["role"] == "tool" and message.get("tool_call_id") in calls.asked:
            calls.result(message)
    answers = _said(span, "output", "assistant")
    answer: Message = {"role": "assistant", "content": None}
    for part in answers:
        answer |= known(part)
    if requested := [call for part in answers for call in part.get("tool_calls", ())]:
        answer["tool_calls"] = requested
    model = _of(span, "model")
    turn = calls.turn([*said, answer], model if isinstance(model, str) else None, start_ns=start)
    if turn is not None:
        turn.prompt_tokens, turn.response_tokens = (integer(_of(span, name)) for name in ("prompt", "response"))
        calls.finished(next(iter(listed(span.get("gen_ai.response.finish_reasons"))), None))
    return turn


def _plain(values: list[Any]) -> list[Message]:
    return [message for message in map(plain, messages(values)) if message is not None]


def _said(span: Row, name: str, role: str) -> list[Message]:
    """Return the messages that a model read or wrote. Anything but messages becomes the text of a message."""
    value = parsed(_of(span, name))
    text = one_line(value if isinstance(value, str) else json.dumps(value))
    return _plain(spoken(value)) or ([{"role": role, "content": text}] if value else [])


FORMAT = Format(
    "spans", "exported spans (OpenTelemetry's JSON, MLflow, Langfuse)", (".json", ".jsonl"),
    (*SPREAD, *names("info data", "traces", "trace_id trace", "observations timestamp", "data meta")), read,
    certain=False,
)  # fmt: skip
