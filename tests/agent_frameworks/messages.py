"""The Messages protocol for the stand-in: it thinks, calls the tool ``add`` once, then says the result."""

from __future__ import annotations

import json
from typing import Any

USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 5}
THOUGHT = {"type": "thinking", "thinking": "Two and two.", "signature": "c2lnbmVk"}


def answer(body: dict[str, Any]) -> Any:
    """What the server says to ``body``: a message, or the events of its stream."""
    if body["model"] == "missing":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": "no such model"}}
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny-1", "stop_sequence": None}
    content, reason = _content(body)
    if not body.get("stream"):
        return {**base, "content": content, "stop_reason": reason, "usage": USAGE}
    begun = {**base, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(content):
        events += [{**event, "index": index} for event in _events(block)]
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": USAGE["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _content(body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    last = body["messages"][-1]["content"]
    told = isinstance(last, list) and last[-1].get("type") == "tool_result"
    if body.get("tools") and not told:
        call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 2}}
        return [*([THOUGHT] if body.get("thinking") else []), call], "tool_use"
    text = '{"sum": 4}' if body.get("output_config") else "It is 4."
    return [{"type": "text", "text": text}], "end_turn"


def _events(block: dict[str, Any]) -> list[dict[str, Any]]:
    kind = block["type"]
    if kind == "tool_use":
        text = json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", text[:5], text[5:])]
        empty = {**block, "input": {}}
    elif kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in ("Two and ", "two.")]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        empty = {"type": "thinking", "thinking": "", "signature": ""}
    else:
        deltas = [{"type": "text_delta", "text": part} for part in ("It ", "is ", "4.")]
        empty = {"type": "text", "text": ""}
    changes = [{"type": "content_block_delta", "delta": delta} for delta in deltas]
    return [{"type": "content_block_start", "content_block": empty}, *changes, {"type": "content_block_stop"}]
