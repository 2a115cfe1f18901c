"""The model "script" of the stand-in: it makes the calls that the user's message lists, for each turn a list of
``[name, arguments]``. Asked for anything else, it sums up."""

from __future__ import annotations

import json
from typing import Any

SUMMARY = "So far each of the numbers was divided by two."


def calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of the next turn. Their ids count the turns, so that a history may be replaced by a summary."""
    if body["model"] != "script":
        return []
    asked = [_text(message["content"]) for message in body["messages"] if message["role"] == "user"]
    scripts = [text for text in asked if text.startswith("[[")]
    if not scripts:
        return []
    turns, _ = json.JSONDecoder().raw_decode(scripts[-1])
    done = [int(message["tool_call_id"].split("_")[1]) for message in body["messages"] if message["role"] == "tool"]
    turn = max(done, default=-1) + 1
    return [
        {"id": f"call_{turn}_{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for place, (name, given) in enumerate(turns[turn])
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
