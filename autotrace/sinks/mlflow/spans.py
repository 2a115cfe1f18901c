"""Describe a trajectory's spans in MLflow's words: reserved attributes, ids and times as recorded.

All ways of writing use the same description: ``otlp`` makes a message, ``rows`` makes the rows of a database.
Structured values are JSON text, which a server unpacks cheapest (a value for each token would cost 3 ms a call).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from autotrace.sinks import payload
from autotrace.trajectory.durations import ending
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
"""Maps a role to MLflow's span type; other roles are UNKNOWN."""
_CHAT_ROLES = ("system", "user", "assistant", "tool")
UNKNOWN_ROLE = "history"
"""Role of conversation text that may be anybody's (``trajectory.markup``)."""
_RESERVED = ("mlflow.", "session.id", "user.id")


class JsonText(str):
    """Holds an object or a list as JSON."""

    __slots__ = ()


class MlflowSpan(NamedTuple):
    """Describes a span."""

    trace_id: str
    """Trace id: 32 hex digits."""
    span_id: str
    """Span id: 16 hex digits."""
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    status: str
    """Status: OK | ERROR | UNSET"""
    message: str
    """Reason of a failure; empty without a failure."""
    exception: tuple[str, str, str] | None
    """Type, message, formatted stack; an event at ``end_ns``."""
    attributes: dict[str, str | int | bool]

    @property
    def size(self) -> int:
        """Return the bytes of the span, about."""
        texts = [value for value in self.attributes.values() if isinstance(value, str)]
        size = 100 + 10 * len(self.attributes) + sum(map(len, self.attributes)) + sum(map(len, self.exception or ()))
        return size + sum(len(value) if value.isascii() else len(value.encode(errors="replace")) for value in texts)


def encode(trajectory: Trajectory) -> list[MlflowSpan]:
    """Encode all spans of ``trajectory``; ``info.describe`` has name, tags and session of the trace.

    Raises ``ValueError`` for an id that is not hexadecimal.
    """
    if len(bytes.fromhex(trajectory.trace_id)) != 16:
        raise ValueError("a trace id has 32 hexadecimal digits")
    turns = {span.span_id for span in trajectory.llm_spans}
    return [_span(trajectory, span, span.span_id in turns) for span in trajectory.spans]


def _span(trajectory: Trajectory, span: Span, is_turn: bool) -> MlflowSpan:
    for span_id in (span.span_id, span.parent_id):
        if span_id and len(bytes.fromhex(span_id)) != 8:
            raise ValueError("a span id has 16 hexadecimal digits")
    attributes: dict[str, str | int | bool] = {"mlflow.spanType": SPAN_TYPES.get(span.role, "UNKNOWN")}
    turn = payload.turn(span) if span.role == "llm" else None
    asked, answered = payload.said(trajectory) if _is_bare(trajectory, span) else (None, None)
    if asked is not None or answered is not None:
        turn = payload.TurnMessages([asked] if asked else [], answered)
        attributes["mlflow.message.format"] = "openai"
    _put(attributes, "mlflow.spanInputs", _inputs(span, turn))
    _put(attributes, "mlflow.spanOutputs", _outputs(trajectory, span, turn))
    for name, value in _own_attributes(trajectory, span, is_turn).items():
        _put(attributes, name, value)
    for name, value in span.attributes.items():
        if not name.startswith(_RESERVED) and value is not None:
            _put(attributes, text(name)[:250], payload.jsonable(value))
    ended, opened = span.status == OK, span.status == OPEN
    failed = not ended and not opened
    return MlflowSpan(
        trajectory.trace_id,
        span.span_id,
        span.parent_id or None,
        text(span.shown_name).replace("\0", "\ufffd"),  # a column of PostgreSQL, which has no NUL
        max(0, span.start_ns),
        max(0, payload.end_of(trajectory, span)),
        "OK" if ended else "UNSET" if opened else "ERROR",
        (payload.failure(span) or span.status) if failed else "",
        (text(span.error[0]), text(span.error[1]), text(span.error[2])) if failed and span.error else None,
        attributes,
    )


def _is_bare(trajectory: Trajectory, span: Span) -> bool:
    """Tell whether ``span`` is a root that recorded nothing of a conversation: it then shows question and answer."""
    return span is trajectory.root and not (span.inputs or span.output or span.prompt_text or span.response_text)


def _inputs(span: Span, turn: payload.TurnMessages | None) -> Any:
    inputs = payload.jsonable(span.inputs)
    if turn is None:
        return inputs
    messages = [_chat(message) for message in turn.messages]
    return {**inputs, "messages": messages} if messages else inputs


def _outputs(trajectory: Trajectory, span: Span, turn: payload.TurnMessages | None) -> Any:
    output = payload.jsonable(span.output)
    facts = payload.jsonable(trajectory.facts) if span is trajectory.root else {}
    if turn is not None:
        if turn.reply is None:
            return {**_named(output), **facts} if facts else output
        why = ending(trajectory, span) or ("stop" if span.status == OK else None)
        choices = [{"index": 0, "message": _chat(turn.reply), "finish_reason": why}]
        return {**_named(output), **facts, "choices": choices}
    texts = payload.texts(trajectory, span) if span.role == "agent" or span is trajectory.root else {}
    return {**_named(output), **facts, **texts} if facts or texts else output


def _named(output: Any) -> dict[str, Any]:
    """Return an output as a mapping, so that more can be added."""
    if isinstance(output, dict):
        return output
    return {} if output is None else {"result": output}


def _chat(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message for MLflow's chat view, which has four roles and wants text. Words that may be the model's are
    not shown as the user's."""
    role = message.get("role")
    if role == UNKNOWN_ROLE:
        role = "system"
    content = message.get("content")
    shown = {**message, "role": role if role in _CHAT_ROLES else "user"}
    shown["content"] = content if isinstance(content, (str, list)) or content is None else str(content)
    return shown


def _own_attributes(trajectory: Trajectory, span: Span, is_turn: bool) -> dict[str, Any]:
    """Return MLflow's token usage, and our attributes: token ids as text (``docs/backends.md``: the whole prompt).

    A server sums the usage of all spans. The usage of a model that a tool or a reward called is therefore left out: a
    trajectory has the tokens of its turns, in every backend and in ``autotrace ls``.
    """
    own: dict[str, Any] = {"autotrace.role": span.role, "autotrace.status": span.status, "autotrace.key": span.key}
    if span.role == "llm":
        if is_turn and (counts := payload.usage(span)) is not None:
            own["mlflow.chat.tokenUsage"] = usage(counts)
        own["mlflow.message.format"] = "openai"
        own["mlflow.llm.model"] = payload.model_name(trajectory, span)
        own["autotrace.prompt_base"] = span.prompt_base
        own["autotrace.prompt_keep"] = span.prompt_keep if span.prompt_base else None
        own["autotrace.logprobs"] = payload.packed_floats(logprobs) if (logprobs := span.logprobs) else None
        if (new := span.new_prompt_ids) is not None:
            own["autotrace.new_prompt_ids"] = payload.packed(new)
        if (response := span.response_ids) is not None:
            own["autotrace.response_ids"] = payload.packed(response)
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


def usage(counts: tuple[int, int]) -> dict[str, int]:
    """Convert token counts (``payload.usage``) to MLflow's words."""
    return {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}


def _put(attributes: dict[str, str | int | bool], name: str, value: Any) -> None:
    """Put text, truth values and integers of 64 bits unchanged, None not at all, everything else as JSON text."""
    if value is None:
        return
    if isinstance(value, (str, bool)) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63):
        attributes[name] = value
    else:
        encoded = msgspec.json.encode(value).decode()
        attributes[name] = JsonText(encoded) if isinstance(value, (dict, list)) else encoded
