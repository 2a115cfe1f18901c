"""Read messages and tool results that hold more than text: parts of pydantic-ai, content blocks of MCP, messages of
LangChain. Add the tool calls that appear only in messages, for trajectories made from a conversation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from autotrace.spool.records import CONVERSATION
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import one_line
from autotrace.trajectory.tool_calls import ATTRIBUTE

Message = dict[str, Any]
_SAID = {"system-prompt": "system", "user-prompt": "user"}


def read(item: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a request or response (``parts``, ``kind``), in the form of chat completions."""
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
    """Return the newest request's instructions to the model; older requests repeat their instructions."""
    told = next((item["instructions"] for item in reversed(items) if item.get("instructions")), None)
    return [{"role": "system", "content": told}] if isinstance(told, str) else []


def _answer(parts: Sequence[Mapping[str, Any]]) -> Message:
    def texts(kind: str) -> list[str]:
        said = (part.get("content") for part in parts if part.get("part_kind") == kind)
        return [text for text in said if isinstance(text, str)]

    answer: Message = {"role": "assistant", "content": "\n".join(texts("text")) or None}
    if thought := texts("thinking"):
        answer["reasoning_content"] = "\n".join(thought)
    calls = [
        tool_call(part.get("tool_call_id"), part.get("tool_name"), {} if part.get("args") is None else part["args"])
        for part in parts
        if part.get("part_kind") == "tool-call"
    ]
    return {**answer, "tool_calls": calls} if calls else answer


def tool_call(id: Any, name: Any, arguments: Any) -> Message:
    """Build a tool call in the form of chat completions."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def read_tool_results(spans: Iterable[Span]) -> None:
    """Replace a tool's result by its text, if a message or blocks hold the text."""
    for span in spans:
        if span.role == "tool" and isinstance(span.output, dict):
            text = _text(span.output)
            if text is not None:
                span.output = text


def _text(output: Mapping[str, Any]) -> str | None:
    """Return the text; None if the output contains anything else that no other field has."""
    content = output.get("content")
    if output.get("type") == "tool" and isinstance(content, str):
        return content if not output.get("artifact") else None
    if not isinstance(content, list):
        return None
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts) if texts and len(texts) == len(content) else None


NOTE = "made from its conversation: no spec names the function that is one rollout"


def with_told_tools(spans: Sequence[Span]) -> list[Span]:
    """Add a tool call to ``spans``, the root first, for each tool answer passed to a turn: from the end of the
    requesting turn, if known, to the begin of the receiving turn."""
    root = spans[0]
    asked: dict[str, dict[str, Any]] = {}
    ended: dict[tuple[str, str], int] = {}
    told: dict[tuple[str, int], Span] = {}
    """Call id and occurrence of the id -> call: agents shorten answers of tools, and some agents reuse ids."""
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
