"""A trajectory as OpenTelemetry spans: GenAI semantic conventions where they have a word, ``autotrace.*`` for the rest.

Source: open-telemetry/semantic-conventions-genai (status Development), spans and events of late 2026. Usage is on
``chat`` spans only, so that a receiver that adds up a trace counts it once. Rewards are ``gen_ai.evaluation.result``;
as events of the root span, because receivers of traces take those, and few take the log records that the newest
edition prefers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from autotrace import __version__
from autotrace.insight.profile import codes, decode
from autotrace.sinks import payload
from autotrace.sinks.otlp.events import events
from autotrace.sinks.otlp.messages import arguments_of, input_messages, output_messages
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.tool_names import tool_name

OPERATIONS = {"trajectory": "invoke_agent", "agent": "invoke_agent", "llm": "chat", "tool": "execute_tool"}
KINDS = {"llm": SpanKind.CLIENT, "engine": SpanKind.SERVER}
ENGINES = ("vllm", "sglang", "trtllm")
REQUEST = {
    "temperature": float,
    "top_p": float,
    "top_k": float,
    "max_tokens": int,
    "frequency_penalty": float,
    "presence_penalty": float,
    "seed": int,
}
"""Sampling parameters that the conventions name, and the type they want."""
MAX_TEXT = 1_000_000
"""Characters of one attribute; what is longer loses its middle, and ``autotrace.cut`` names it."""
LEFT_OUT = frozenset({"items"})
"""Measured, and not sent: receivers have never been given it, and the conventions have no word for it."""
_SCOPE = InstrumentationScope("autotrace", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def otel_span(trajectory: Trajectory, span: Span, resource: Resource) -> ReadableSpan:
    """``span`` with the ids and times it was recorded with."""
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
    """About how many bytes ``span`` takes."""
    attributes = span.attributes or {}
    return 500 + sum(40 + (4 * len(value) if not value.isascii() else len(value)) for value in _strings(attributes))


def _strings(attributes: Mapping[str, Any]) -> list[str]:
    return [value if isinstance(value, str) else "" for value in attributes.values()]


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
    """What the root span carries for the whole trajectory: text, mask, facts, findings, notes."""
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
    stop = span.attributes.get("stop_reason") or span.attributes.get("finish_reason")
    reason = "error" if payload.failure(span) else str(stop or "stop")
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
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
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
    """The engine that answered, judged by the spans below; else the library that was called."""
    below = [other.key for other in trajectory.spans if other.parent_id == span.span_id]
    for key in (span.key, *below):
        for engine in ENGINES:
            if engine in key.lower():
                return engine
    return span.key.split(".")[0] or "unknown"


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _limited(attributes: dict[str, Any]) -> dict[str, Any]:
    """Values as OpenTelemetry takes them: scalars and lists of texts; anything else is JSON text. Cuts long texts."""
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
