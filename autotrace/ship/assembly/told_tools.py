"""Calls of tools that nothing recorded, in a trajectory that was made from its conversation: its messages tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from autotrace.spool.records import CONVERSATION
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import one_line
from autotrace.trajectory.tool_names import ATTRIBUTE

NOTE = "made from its conversation: no list names the function that is one rollout"


def with_told_tools(spans: Sequence[Span]) -> list[Span]:
    """``spans``, the root first, with a call for each tool's answer that a turn is passed: from the end of the turn
    that asked for it, as far as that is known, to the begin of this one."""
    root = spans[0]
    asked: dict[str, dict[str, Any]] = {}
    ended: dict[tuple[str, str], int] = {}
    told: dict[tuple[str, int], Span] = {}
    """Id of a call, and which of those with this id: agents shorten what tools answered, and some give ids again."""
    for turn in (span for span in spans if span.role == "llm"):
        times: Counter[str] = Counter()
        for message in turn.messages or ():
            for call in message.get("tool_calls") or ():
                asked[str(call.get("id"))] = function = call.get("function") or {}
                ended.setdefault(
                    (str(call.get("id")), one_line(function.get("arguments"))), turn.end_ns or turn.start_ns
                )
            if message.get("role") != "tool":
                continue
            id = str(message.get("tool_call_id"))
            times[id] += 1
            if (key := (id, times[id])) in told:
                continue
            function = asked.get(id, {"name": message.get("name")})
            start = min(turn.start_ns, ended.get((id, one_line(function.get("arguments"))), turn.start_ns))
            name = one_line(function.get("name") or "tool")
            told[key] = Span(
                blake2b(f"{root.span_id} {len(told)}".encode(), digest_size=8).hexdigest(), root.span_id, name, "tool",
                CONVERSATION, start, turn.start_ns, "OK", _inputs(function.get("arguments")), message.get("content"),
                {ATTRIBUTE: name}, host=root.host, pid=root.pid,
            )  # fmt: skip
    return [root, *sorted([*spans[1:], *told.values()], key=lambda span: (span.start_ns, span.span_id))]


def _inputs(arguments: Any) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(arguments) if isinstance(arguments, str) else None
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments} if arguments else {}
