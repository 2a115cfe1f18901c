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
    if decoded is not None or not span.inputs:
        return decoded
    values = list(span.inputs.values())
    return _words(values[0] if len(values) == 1 else span.inputs, span.prompt_tokens is not None)


def output_text(span: Span) -> str | None:
    """The output of an LLM call: its text, else what it returned; None: not recorded."""
    if span.response_text is not None or span.output is None:
        return span.response_text
    return _words(span.output, span.response_tokens is not None)


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
