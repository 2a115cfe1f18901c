"""Convert a trajectory to OpenTelemetry spans: GenAI conventions where a word exists, ``autotrace.*`` for the rest.

Source: open-telemetry/semantic-conventions-genai (status Development), the release that ``CONVENTIONS`` names. Only
``chat`` spans have usage, so that a receiver that sums up a trace counts each usage once. Rewards are
``gen_ai.evaluation.result``, as events of the root span: receivers of traces take events, and few take the log records
that this release prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from autotrace import __version__
from autotrace.insight.profile import Mark, codes, decode, marks
from autotrace.insight.registry import by_weight
from autotrace.sinks import payload
from autotrace.trajectory.durations import ending
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.tool_calls import tool_name

CONVENTIONS = "v0.1.0"
"""Names the release of the GenAI semantic conventions; each scope has it as ``autotrace.genai_conventions``."""
OPERATIONS = {"trajectory": "invoke_agent", "agent": "invoke_agent", "llm": "chat", "tool": "execute_tool"}
KINDS = {"llm": SpanKind.CLIENT, "engine": SpanKind.SERVER}
ENGINES = ("vllm", "sglang", "trtllm")
REQUEST = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "max_tokens": int,
    "frequency_penalty": float,
    "presence_penalty": float,
    "seed": int,
}
"""Maps sampling parameters of the conventions to the required types."""
MAX_TEXT = 1_000_000
"""Limits the characters of an attribute; a longer text loses its middle, and ``autotrace.cut`` names the attribute."""
LEFT_OUT = frozenset({"items"})
"""Measured fields that are not sent: receivers never got the fields, and the conventions have no word."""
_SCOPE = InstrumentationScope("autotrace", __version__, attributes={"autotrace.genai_conventions": CONVENTIONS})
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def otel_span(trajectory: Trajectory, span: Span, resource: Resource) -> ReadableSpan:
    """Convert ``span`` with the recorded ids and times."""
    error = payload.failure(span)
    return ReadableSpan(
        name=_name(trajectory, span),
        context=_context(trajectory, span.span_id),
        parent=_context(trajectory, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=_limited(_attributes(trajectory, span)),
        events=events(trajectory, span),
        kind=KINDS.get(span.role, SpanKind.INTERNAL),
        status=Status(StatusCode.OK) if error is None else Status(StatusCode.ERROR, error[:1000]),
        start_time=max(0, span.start_ns),
        end_time=max(0, payload.end_of(trajectory, span)),
        instrumentation_scope=_SCOPE,
    )


def size_of(span: ReadableSpan) -> int:
    """Return the bytes of ``span``, about."""
    values = (span.attributes or {}).values()
    texts = [value for value in values if isinstance(value, str)]
    return 500 + 40 * len(values) + sum(len(value) if value.isascii() else 4 * len(value) for value in texts)


def _context(trajectory: Trajectory, span_id: str) -> SpanContext:
    return SpanContext(int(trajectory.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _name(trajectory: Trajectory, span: Span) -> str:
    operation = OPERATIONS.get(span.role)
    subject = {
        "chat": payload.model_name(trajectory, span),
        "execute_tool": tool_name(span),
        "invoke_agent": _agent(trajectory, span),
    }
    return text(f"{operation} {subject[operation]}" if operation else span.name)


def _agent(trajectory: Trajectory, span: Span) -> str:
    name = trajectory.attributes.get("agent_name") or span.attributes.get("agent_name")
    return text(str(name or span.name.split(".")[0]))


def _attributes(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "autotrace.name": span.name,
        "autotrace.role": span.role,
        "autotrace.target": span.key,
    }
    for source in (span.attributes, trajectory.attributes):
        attributes |= {f"autotrace.{text(str(name))}": payload.jsonable(value) for name, value in source.items()}
    attributes |= {"autotrace.run_id": trajectory.run_id, "autotrace.status": span.status}
    attributes |= {"autotrace.host": span.host, "autotrace.pid": span.pid}
    group = payload.group_of(trajectory.attributes)
    if group is not None:
        attributes["autotrace.group"] = group
        attributes["gen_ai.conversation.id"] = f"{group}/{trajectory.attributes.get('rollout_n', 0)}"
    if span.role in OPERATIONS:
        attributes["gen_ai.operation.name"] = OPERATIONS[span.role]
    if span.error is not None or payload.failure(span):
        attributes["error.type"] = span.error[0] if span.error else span.status.lower()
    attributes |= {
        f"autotrace.{name}": payload.jsonable(value)
        for name, value in payload.measured(span).items()
        if name not in LEFT_OUT
    }
    attributes |= _content(trajectory, span)
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


def _content(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    if span.role == "llm":
        return _chat(trajectory, span)
    inputs, output = payload.jsonable(span.inputs), payload.jsonable(span.output)
    if span.role == "tool":
        tool_call = inputs.get("tool_call")
        arguments = (
            tool_call.get("arguments", tool_call) if isinstance(tool_call, dict) else inputs.get("parameters", inputs)
        )
        return {
            "gen_ai.tool.name": tool_name(span),
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": _json(arguments_of(arguments)),
            "gen_ai.tool.call.result": _json(output),
        }
    attributes: dict[str, Any] = {
        "autotrace.inputs": _json(inputs) if inputs else None,
        "autotrace.output": _json(output),
    }
    if span.role in ("trajectory", "agent"):
        attributes["gen_ai.agent.name"] = _agent(trajectory, span)
    return attributes | _root(trajectory) if span is trajectory.root else attributes


def _root(trajectory: Trajectory) -> dict[str, Any]:
    """Return the root span's attributes for the whole trajectory: text, mask, facts, findings, notes."""
    whole = payload.whole(trajectory)
    prompt, response = whole.get("prompt_text"), whole.get("response_text")
    attributes: dict[str, Any] = {
        "autotrace.turns": trajectory.turns,
        "autotrace.response_mask": whole.get("response_mask"),
    }
    if prompt is not None:
        attributes["gen_ai.input.messages"] = _json(input_messages([{"role": "user", "content": prompt}]))
    if response is not None:
        stop = "error" if payload.failure(trajectory.root) else "stop"
        attributes["gen_ai.output.messages"] = _json(output_messages({"content": response}, stop))
    if trajectory.facts:
        facts = payload.jsonable(trajectory.facts)
        attributes["autotrace.facts"] = _json(facts)
        attributes["autotrace.reward"] = facts.get("reward")
    if found := codes(decode(trajectory.profile)):
        attributes["autotrace.findings"] = [text(code) for code in found]
    if trajectory.notes:
        attributes["autotrace.notes"] = payload.jsonable(trajectory.notes)
    tokens = payload.tokens(trajectory, trajectory.root)
    return attributes | {f"autotrace.{name}": value for name, value in tokens.items()}


def _chat(trajectory: Trajectory, span: Span) -> dict[str, Any]:
    turn, model = payload.turn(span), payload.model_name(trajectory, span)
    reason = "error" if payload.failure(span) else ending(trajectory, span) or "stop"
    attributes: dict[str, Any] = {
        "gen_ai.provider.name": provider(trajectory, span),
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": [reason],
        "gen_ai.output.type": "text",
        "autotrace.inputs": _json(payload.jsonable(span.inputs)) if span.inputs else None,
        "autotrace.output": _json(payload.jsonable(span.output)),
    }
    sampling = span.inputs.get("sampling_params", span.inputs)
    for name, kind in REQUEST.items():
        value = sampling.get(name) if isinstance(sampling, dict) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63:
            attributes[f"gen_ai.request.{name}"] = kind(value)
    if turn.messages:
        attributes["gen_ai.input.messages"] = _json(input_messages(turn.messages))
    if turn.reply is not None:
        attributes["gen_ai.output.messages"] = _json(output_messages(turn.reply, reason))
    usage, cached = payload.usage(span), span.attributes.get("cached_tokens")
    if usage is not None:
        attributes |= {"gen_ai.usage.input_tokens": usage[0], "gen_ai.usage.output_tokens": usage[1]}
    if isinstance(cached, int):
        attributes["gen_ai.usage.cache_read.input_tokens"] = cached
    if span.first_item_ns:
        attributes["gen_ai.response.time_to_first_chunk"] = (span.first_item_ns - span.start_ns) / 1e9
    if span.prompt_base is not None:
        attributes |= {"autotrace.prompt_base": span.prompt_base, "autotrace.prompt_keep": span.prompt_keep}
    return attributes | {f"autotrace.{name}": value for name, value in payload.tokens(trajectory, span).items()}


def provider(trajectory: Trajectory, span: Span) -> str:
    """Return the engine that answered, judged by the spans below; else the library that was called."""
    below = [other.key for other in trajectory.spans if other.parent_id == span.span_id]
    for key in (span.key, *below):
        for engine in ENGINES:
            if engine in key.lower():
                return engine
    return span.key.split(".")[0] or "unknown"


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _limited(attributes: dict[str, Any]) -> dict[str, Any]:
    """Limit values to OpenTelemetry's types: scalars and lists of texts; anything else is JSON text. Cuts long
    texts."""
    cut: list[str] = []
    for name, value in attributes.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            continue
        if not isinstance(value, (str, bool, int, float)):
            value = msgspec.json.encode(value).decode()
        if isinstance(value, str) and len(value) > MAX_TEXT:
            cut.append(f"{name}: {len(value)} characters")
            half = MAX_TEXT // 2
            value = f"{value[:half]} … [{len(value) - MAX_TEXT} characters cut] … {value[-half:]}"
        attributes[name] = text(value) if isinstance(value, str) else value
    return attributes | {"autotrace.cut": cut} if cut else attributes


FINDING = "autotrace.finding"


def events(trajectory: Trajectory, span: Span) -> list[Event]:
    """Return the events of ``span``, each at its own time."""
    end = max(0, payload.end_of(trajectory, span))
    made: list[Event] = []
    if span.error is not None:
        names = ("exception.type", "exception.message", "exception.stacktrace")
        exception = {name: text(value) for name, value in zip(names, span.error, strict=True)}
        made.append(Event("exception", exception, timestamp=end))
    if span is trajectory.root:
        for name, value in scores(trajectory.facts).items():
            score: dict[str, Any] = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(value)}
            if isinstance(value, bool):
                score["gen_ai.evaluation.score.label"] = "pass" if value else "fail"
            made.append(Event("gen_ai.evaluation.result", score, timestamp=end))
        made += _findings(trajectory)
    return made


def scores(facts: Mapping[str, Any]) -> dict[str, float | bool]:
    """Select facts that are results of an evaluation: ``reward`` and its parts, ``advantage``; numbers or truth
    values."""
    results: dict[str, float | bool] = {}
    for name, value in payload.jsonable(dict(facts)).items():
        if not name.startswith(("reward", "advantage", "score")):
            continue
        for part, number in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(number, (bool, int, float)):
                results[f"{name}.{part}" if part else name] = number
    return results


def _findings(trajectory: Trajectory) -> Iterator[Event]:
    """Yield each code once, the most costly first, at the end of the finding's turn."""
    turns = trajectory.llm_spans
    for mark in by_weight(marks(trajectory.profile)):
        at = turns[mark.turn - 1] if mark.turn is not None and 0 < mark.turn <= len(turns) else None
        yield Event(FINDING, _of_mark(mark, at), timestamp=max(0, payload.end_of(trajectory, at or trajectory.root)))


def _of_mark(mark: Mark, at: Span | None) -> dict[str, Any]:
    attributes = {
        "code": text(mark.code),
        "turn": mark.turn,
        "token": mark.token,
        "span_id": None if at is None else at.span_id,
        "note": text(mark.note) or None,
    }
    return {f"{FINDING}.{name}": value for name, value in attributes.items() if value is not None}


def input_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert OpenAI's role/content messages to role and parts."""
    return [{"role": str(message.get("role", "user")), "parts": _parts(message)} for message in messages]


def output_messages(reply: dict[str, Any], finish_reason: str) -> list[dict[str, Any]]:
    """Return the assistant's message, with the reason of its end."""
    return [{**input_messages([{"role": "assistant", **reply}])[0], "finish_reason": finish_reason}]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    parts: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    parts += map(_part, content if isinstance(content, list) else [content] if content else [])
    for call in message.get("tool_calls") or []:
        function = call.get("function", call) if isinstance(call, dict) else {"name": str(call)}
        named = {"id": call.get("id") if isinstance(call, dict) else None, "name": function.get("name")}
        parts.append({"type": "tool_call", **named, "arguments": arguments_of(function.get("arguments"))})
    return parts


def _part(piece: Any) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "content": piece}
    if isinstance(piece, dict) and isinstance(piece.get("text"), str):
        return {"type": "text", "content": piece["text"]}
    # an image or another medium is recorded as type and size; no standard part has a place for either
    return {"type": "text", "content": msgspec.json.encode(piece).decode()}


def arguments_of(value: Any) -> Any:
    """Parse the arguments of a tool call, which models send as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return value
