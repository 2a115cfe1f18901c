"""Convert messages of other projects to chat-completions messages. The tables name every accepted spelling.

SWE-agent and mini-swe-agent write a command as a code block, OpenHands writes events, BFCL writes steps within a log,
OpenAI's Responses API writes items without a role, and Anthropic's API writes tool calls and results as parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from autotrace.foreign.collector import listed, mapped, objects, part_text
from autotrace.foreign.opened import decoded

SAID = ("messages", "history", "traj", "conversations", "conversation", "trajectory", "inference_log")
"""Names under which a row has its messages, in the order of preference."""
_ROLES = {
    "human": "user", "gpt": "assistant", "ai": "assistant", "model": "assistant", "bot": "assistant",
    "agent": "assistant", "function": "tool", "observation": "tool", "ipython": "tool", "function_call": "assistant",
    "environment": "tool", "developer": "system",
}  # fmt: skip
_KNOWN = frozenset({"system", "user", "assistant", "tool", *_ROLES})
"""Roles of messages. BFCL's log has further roles, which no model read."""
_SPEAKER, _TEXT = ("role", "from"), ("content", "value", "message", "parts")
_BLOCK = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)
_DEEPEST = 3
_SILENT = frozenset({"message", "system", "finish", "think", "recall"})
"""Actions and observations of OpenHands that call no tool."""
_HIDDEN = frozenset({
    "action", "action_risk", "args", "blocking", "confirmation_state", "hidden", "id", "is_confirmed", "keep_prompt",
    "message", "security_risk", "source", "thought", "timestamp",
})  # fmt: skip
"""Names in an action of OpenHands besides the arguments."""
_ENDS = re.compile(r"\s*(?:submit\b|echo ['\"]?(?:COMPLETE_TASK_AND_SUBMIT|MINI_SWE_AGENT)_FINAL_OUTPUT)")
"""Commands that end a rollout of SWE-agent and mini-swe-agent: no answer of the model follows."""


def spoken(value: Any) -> list[Any]:
    """Return the items of a list of messages, also if the list is written as JSON text; else an empty list."""
    if isinstance(value, str) and value.lstrip()[:2] in ("[{", "[\n", "[ ", "[]"):
        value = parsed(value)
    return [value] if isinstance(value, dict) else listed(value)


def parsed(value: Any) -> Any:
    """Return the value of JSON text; anything else unchanged."""
    try:
        return decoded(value.encode("utf-8", "replace")) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def first(given: dict[str, Any], names: Iterable[str]) -> Any:
    """Return the first value that is not None."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def messages(values: Iterable[Any], *, in_blocks: bool = False) -> list[dict[str, Any]]:
    """Return chat-completions messages. ``in_blocks``: the code block of an answer, or the commands in the JSON of an
    answer, are a call, and the next message of the user is the call's result."""
    found: list[dict[str, Any]] = []
    waits = False
    for given in _flat(values, _DEEPEST):
        for message in _of(given):
            if waits and message["role"] == "user":
                message["role"] = "tool"
            elif not found and "action" in given and not {"source", "role"} & given.keys():
                message["role"] = "user"  # OpenHands before 0.10 begins with the task
            waits = False
            if message["role"] == "assistant" and not message.get("tool_calls") and in_blocks:
                text = str(message.get("content") or "")
                block = _BLOCK.search(text)
                command = given.get("action") if isinstance(given.get("action"), str) else block and block[1]
                if command := _keystrokes(text) or command:
                    name = "submit" if _ENDS.match(command) else "bash"
                    message["tool_calls"], waits = [{"name": name, "arguments": {"command": command}}], True
            found.append(message)
        decoded = [text.partition("(") for text in listed(given.get("model_response_decoded")) if isinstance(text, str)]
        if decoded and found and found[-1]["role"] == "assistant" and not found[-1].get("tool_calls"):  # BFCL
            calls = [{"name": name, "arguments": inputs.removesuffix(")")} for name, _, inputs in decoded]
            found[-1]["tool_calls"] = calls
    return found


def _keystrokes(text: str) -> str:
    """Return the commands that Terminal-Bench's agents write as JSON."""
    keys = objects(mapped(parsed(text[text.find("{") : text.rfind("}") + 1])).get("commands"))
    return "".join(one["keystrokes"] for one in keys if isinstance(one.get("keystrokes"), str)).strip()


def _flat(values: Iterable[Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects that may be messages: pairs of events, and steps within a turn, count as the parts."""
    for given in values:
        if isinstance(given, list):
            yield from _flat(given, depth - 1) if depth else ()
        elif isinstance(given, dict):
            if _is_message(given):
                yield given
            elif depth:
                yield from _flat(
                    (part for name, part in given.items() if isinstance(part, list) or name == "message"), depth - 1
                )


def _is_message(given: dict[str, Any]) -> bool:
    return any(isinstance(given.get(name), str) for name in (*_SPEAKER, "action", "observation", "kind", "type"))


def _of(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages that an object is."""
    role = first(given, _SPEAKER)
    if not isinstance(role, str):
        yield from _item(given)
        return
    if role not in _KNOWN or given.get("requestor") == "user" or (role == "user" and given.get("tool_calls")):
        return  # tools of tau2's user, which the model does not see
    content = first(given, _TEXT)
    message = {**given, "role": _ROLES.get(role, role), "content": content}
    calls = spoken(given.get("tool_calls")) or objects([given.get("function_call")])
    if role == "function_call" and isinstance(content, str):
        calls, message["content"] = [content], None
    if isinstance(content, list):
        calls = [*calls, *_named(content)]
        calls += [first(part, ("value",)) or part for part in objects(content) if part.get("type") in _CALLS]
        results = [part for part in objects(content) if part.get("type") in _RESULTS]
        for part in results:
            seen = first(part, ("content", "response", "result"))
            yield {"role": "tool", "tool_call_id": first(part, ("tool_use_id", "id")), "content": seen}
        thoughts = [
            first(part, ("text", "reasoning", *_TEXT)) for part in objects(content) if part.get("type") == "reasoning"
        ]
        kinds = (*_CALLS, *_RESULTS, *(["reasoning"] if any(thoughts) else ()))
        rest = [part for part in content if mapped(part).get("type") not in kinds] if not _named(content) else []
        message |= {"content": rest or None, **({"reasoning": thoughts[0]} if any(thoughts) else {})}
        if results and not rest:
            return
    if message["role"] == "tool":
        message["tool_call_id"] = first(given, _ANSWERED) or next(iter(listed(given.get("tool_call_ids"))), None)
    message["tool_calls"] = calls
    yield message


def _named(content: list[Any]) -> list[dict[str, Any]]:
    """Return the calls in BFCL's form: a tool's name with the arguments as JSON text."""
    pairs = (pair for call in objects(content) if len(call) == 1 for pair in call.items())
    return [
        {"name": name, "arguments": text} for name, text in pairs
        if name != "text" and isinstance(text, str) and isinstance(parsed(text), dict)
    ]  # fmt: skip


_CALLS, _RESULTS = ("tool_use", "toolCall", "tool_call"), ("tool_result", "tool_call_response")
_ANSWERED = ("tool_call_id", "call_id", "tool_use_id", "id")


def _item(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the message of an item without a role: OpenAI's items, then events of both releases of OpenHands."""
    kind, action, seen = given.get("type"), given.get("action"), given.get("observation")
    if kind == "function_call":
        yield {"role": "assistant", "content": None, "tool_calls": [given]}
    elif kind == "function_call_output":
        yield {"role": "tool", "tool_call_id": given.get("call_id"), "content": given.get("output")}
    elif isinstance(told := given.get("llm_message"), dict):
        yield from _of(told) if isinstance(told.get("role"), str) else ()
    elif isinstance(given.get("tool_name"), str) and isinstance(action, dict):
        call = {"id": given.get("tool_call_id"), "name": given["tool_name"], "arguments": action}
        yield {"role": "assistant", "content": given.get("thought"), "tool_calls": [call]}
    elif isinstance(given.get("tool_name"), str) and isinstance(seen, dict):
        content = first(seen, ("content", "output")) or json.dumps(seen)
        yield {"role": "tool", "tool_call_id": given.get("tool_call_id"), "content": content}
    elif isinstance(action, str):
        yield from _action(given, action)
    elif isinstance(seen, str) and seen not in _SILENT:
        yield {"role": "tool", "content": first(given, _TEXT)}


def _action(given: dict[str, Any], action: str) -> Iterator[dict[str, Any]]:
    inputs = mapped(given, "args") or given  # before 0.10 the arguments are beside the action
    is_said = action in _SILENT
    text = first(inputs, ("content", "final_thought", "thought") if is_said else ("thought",))
    role = {"user": "user", "environment": "system"}.get(str(given.get("source")), "assistant")
    if not is_said:
        kept = {name: value for name, value in inputs.items() if name not in _HIDDEN}
        yield {"role": role, "content": text, "tool_calls": [{"name": action, "arguments": kept}]}
    elif text:
        yield {"role": "system" if action == "system" else role, "content": part_text(text)}
