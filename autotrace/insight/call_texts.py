"""Tool calls in texts, in the formats of many models."""

from __future__ import annotations

import re
from collections.abc import Collection

MARKERS = (
    "<tool_call>", "<function=", "<|tool_call_begin|>", "<|tool_call|>", "[TOOL_CALLS]", "<|python_tag|>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5cDSML\uff5c", "<function_calls>", "<minimax:tool_call>",
    "<|START_ACTION|>", "<|channel|>commentary to=", "```tool_code", "```tool_call",
)  # fmt: skip
"""By which formats of tool calls begin; of one text the first that occurs counts."""
TAGGED = re.compile(
    r"[<&](?:lt;)?[|\uff5c]?(?:\w+:)?(?:\w+[_\u2581-])?(?:tool[_ \u2581-]?(?:calls?|use)|function[_ \u2581-]?calls?|"
    r"invoke|action[_-]?start|plugin)\b[^<>&\n]{0,60}(?:>|&gt;)(?=\s*(?:[\[{<&(]|\w+\s*[\n({]))|<(?:\w+:)?invoke name=",
    re.IGNORECASE,
)
OTHERS = re.compile(r"functools\[\{|\u273fFUNCTION\u273f|\"(?:tool_calls|function_call)\"\s*:\s*[\[{]")
"""What begins a call in whatever other format: a tag that is named so, with something like a call behind it."""
_CALLED = r'\s*(?:```(?:json)?\s*)?\[?\{\s*"name"\s*:\s*"[\w.-]+"\s*,\s*"(?:arguments|parameters)"\s*:'
BARE = re.compile(
    rf"\A{_CALLED}"
    rf"|^(?:<\|\w+\|>){{0,2}}{_CALLED}[^`]*[}}\]]\s*(?:```)?\s*(?:<\|\w+\|>)?\s*\Z"
    r"|^[ ]*\[[\w.]+\((?:\w+\s*=[^\n]*)?\)\]\s*(?:<\|\w+\|>)?\s*\Z"
    r"|^Action:[ ]*[\w.-]+[ ]*\nAction Input:",
    re.MULTILINE,
)
"""A last answer that ends in a tool call without any mark: Llama's JSON, also in a fence, Llama 4's call in brackets,
ReAct's two lines."""


def marked(text: str, parsed: int, names: Collection[str] = ()) -> str | None:
    """The last call of more than ``parsed`` that ``text`` has, with what begins it; or a tag that is named like one
    of the tools."""
    marker = next((marker for marker in MARKERS if marker in text), None)
    if marker is not None:
        return f"{marker}{text.rpartition(marker)[2][:120]}" if text.count(marker) > parsed else None
    if parsed:
        return None
    tag = TAGGED.search(text) or OTHERS.search(text)
    at = tag.start() if tag else next((at for name in names if (at := text.find(f"<{name}>")) >= 0), -1)
    return text[at : at + 120] if at >= 0 else None


def bare(text: str) -> str | None:
    """A call without a mark, with which ``text`` ends."""
    found = BARE.search(text)
    return text[found.start() :].strip()[:120] if found else None
