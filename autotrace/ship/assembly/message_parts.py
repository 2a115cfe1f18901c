"""Messages of pydantic-ai, which are made of parts: prompts, texts, tool calls, what tools returned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]
_SAID = {"system-prompt": "system", "user-prompt": "user"}


def read(item: Mapping[str, Any]) -> list[Message]:
    """The messages of one request or response (``parts``, ``kind``), in the form of chat completions."""
    parts = [part for part in item.get("parts") or () if isinstance(part, Mapping)]
    if item.get("kind") == "response":
        return [_answer(parts)]
    messages: list[Message] = []
    for part in parts:
        kind = part.get("part_kind")
        if kind in _SAID:
            messages.append({"role": _SAID[kind], "content": part.get("content")})
        elif part.get("tool_call_id") is not None or kind == "tool-return":
            content = part.get("content")
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
            told = {"tool_call_id": part.get("tool_call_id"), "name": part.get("tool_name")}
            messages.append({"role": "tool", "content": text, **told})
        else:  # asks to try again
            messages.append({"role": "user", "content": part.get("content")})
    return messages


def instructions(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """What the newest request tells the model before everything else; older requests repeat what they were told."""
    told = next((item["instructions"] for item in reversed(items) if item.get("instructions")), None)
    return [{"role": "system", "content": told}] if isinstance(told, str) else []


def _answer(parts: Sequence[Mapping[str, Any]]) -> Message:
    def texts(kind: str) -> list[str]:
        said = (part.get("content") for part in parts if part.get("part_kind") == kind)
        return [text for text in said if isinstance(text, str)]

    answer: Message = {"role": "assistant", "content": "\n".join(texts("text")) or None}
    if thought := texts("thinking"):
        answer["reasoning_content"] = "\n".join(thought)
    calls = [_call(part) for part in parts if part.get("part_kind") == "tool-call"]
    return {**answer, "tool_calls": calls} if calls else answer


def _call(part: Mapping[str, Any]) -> Message:
    given = part.get("args")
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False, default=str)
    return {
        "id": part.get("tool_call_id"),
        "type": "function",
        "function": {"name": part.get("tool_name"), "arguments": text},
    }
