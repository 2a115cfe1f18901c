"""What went into a call and what came out of it, as people read it: decoded texts, else captured values."""

from __future__ import annotations

import json
from typing import Any

from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span


def input_text(span: Span, *, whole: bool = False) -> str | None:
    """Input of an LLM call: the new part of its prompt (``whole``: all of it), else its arguments; None: neither."""
    texts = (span.prompt_text,) if whole else (span.new_prompt_text, span.prompt_text)
    decoded = next((text for text in texts if text), None)
    if decoded is not None:
        return decoded
    if span.messages:
        asked = _asked(span) if whole else _new(span)
        alone = len(asked) == 1 and asked[0].get("role") == "user"
        return "\n".join(message_text(message, named=not alone) for message in asked) or None
    if not span.inputs:
        return None
    values = list(span.inputs.values())
    return _words(values[0] if len(values) == 1 else span.inputs, span.prompt_tokens is not None)


def output_text(span: Span) -> str | None:
    """The output of an LLM call: its text, else what it returned; None: not recorded."""
    if span.response_text is not None:
        return span.response_text
    reply = answer(span)
    if reply is not None:
        return message_text(reply, named=False)
    if span.output is None:
        return None
    return _words(span.output, span.response_tokens is not None)


def thoughts(span: Span) -> str | None:
    """What the model thought before its answer, where its server tells that apart."""
    text = (answer(span) or {}).get("reasoning_content")
    return text if isinstance(text, str) else None


def answer(span: Span) -> dict[str, Any] | None:
    """The message that an LLM call answered with, None where there is none."""
    last = span.messages[-1] if span.messages else None
    return last if last is not None and last.get("role") == "assistant" else None


def _asked(span: Span) -> list[dict[str, Any]]:
    messages = span.messages or []
    return messages if answer(span) is None else messages[:-1]


def _new(span: Span) -> list[dict[str, Any]]:
    """The messages after the model's last answer; the others stand in an earlier call."""
    asked = _asked(span)
    earlier = [number for number, message in enumerate(asked) if message.get("role") == "assistant"]
    return asked[earlier[-1] + 1 :] if earlier else asked


def message_text(message: dict[str, Any], *, named: bool = True) -> str:
    """A message of a chat in words: its text, and the tool calls as ``search({"q": "cats"})``. ``named``: with its role
    in front."""
    content = message.get("content")
    functions = [call.get("function") or {} for call in message.get("tool_calls") or () if isinstance(call, dict)]
    called = [f"{function.get('name')}({function.get('arguments')})" for function in functions]
    words = "\n".join(line for line in ("" if content is None else one_line(content), *called) if line)
    return f"{message.get('role')}: {words}" if named else words


def _words(value: Any, beside_tokens: bool) -> str | None:
    """``value`` as text. ``beside_tokens``: the content is in token ids, so that only text counts here, not a stop
    reason."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        value = value["text"]
    if isinstance(value, str) or not beside_tokens:
        return one_line(value)
    return None


def one_line(value: Any) -> str:
    """A captured value: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False)
