"""Chat messages in the parts model of the GenAI conventions: ``gen_ai.input.messages``, ``gen_ai.output.messages``."""

from __future__ import annotations

from typing import Any

import msgspec


def input_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's role/content messages as role and parts."""
    return [{"role": str(message.get("role", "user")), "parts": _parts(message)} for message in messages]


def output_messages(reply: dict[str, Any], finish_reason: str) -> list[dict[str, Any]]:
    """The assistant's message, with why it ended."""
    return [{**input_messages([{"role": "assistant", **reply}])[0], "finish_reason": finish_reason}]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    parts: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    for piece in content if isinstance(content, list) else [content] if content else []:
        parts.append(_part(piece))
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
    # an image or another medium: recorded as its type and size, which no standard part has a place for
    return {"type": "text", "content": msgspec.json.encode(piece).decode()}


def arguments_of(value: Any) -> Any:
    """Arguments of a tool call: models send them as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return value
