"""Read the chat of an LLM call from the client's side: messages, answer, tool calls, usage, model.

The chat is read from captured values, whatever library made the call: chat completions, Responses and content blocks,
as objects or as plain JSON; here all values are plain dicts and lists. Recognised values move from ``inputs`` and
``output`` to the fields of ``Span`` that every backend and command shows; other values stay. Roles are in the messages
and are never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotrace.ship.assembly import message_parts
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import answered_as, asked_as

Message = dict[str, Any]
MARKER = "…"
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "humanmessage": "user",
          "aimessage": "assistant", "aimessagechunk": "assistant", "systemmessage": "system",
          "toolmessage": "tool"}  # fmt: skip
"""Type of LangChain's message -> role."""
_MEMBERS = {"SYSTEM": "system", "USER": "user", "ASSISTANT": "assistant", "TOOL": "tool", "TOOL_CALL": "assistant",
            "TOOL_RESPONSE": "tool"}  # fmt: skip
"""Member of an enumeration -> role, as in smolagents."""
_OF_MESSAGES = ("content", "tool_calls", "tool_call_id", "name")
"""Parts of a message; other fields are about the call that made the message."""
_GIVEN_AS = ("messages", "input", "prompt")
"""Arguments that have the messages."""
_USAGE = ("usage", "usage_metadata", "token_usage")
_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
_READ, _WRITTEN = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


def read(span: Span) -> None:
    """Fill ``messages``, token counts, ``model`` and ``finish_reason`` of an LLM call from its arguments and result."""
    if any(map(_is_omitted, span.inputs.values())):
        span.inputs = {name: value for name, value in span.inputs.items() if not _is_omitted(value)}
    if span.inputs.keys().isdisjoint(_GIVEN_AS) and not _alone(span.inputs):
        return
    answer = _answer(span.output)
    name, messages = _given(span.inputs, answer is not None or _broken_off(span.output) is not None)
    if messages is None:
        return
    instructions = next((key for key in ("system", "instructions") if span.inputs.get(key)), None)
    if instructions is not None and isinstance(system := _content(span.inputs[instructions]), (str, list)):
        messages = [{"role": "system", "content": system}, *messages]
        del span.inputs[instructions]
    del span.inputs[name]
    span.messages = messages
    _usage(span)
    for key in ("model", "finish_reason"):
        value = _from_output(span.output, key)
        if isinstance(value, str):
            span.attributes.setdefault(key, value)
    if answer is not None:
        span.messages.append(answer)
        span.output = _rest(span)


def _is_omitted(value: Any) -> bool:
    """Return whether a client's helper passed the value for an argument that was not given."""
    if not isinstance(value, dict) or value.keys() != {MARKER}:
        return False
    return str(value[MARKER]).rpartition(".")[2] in ("Omit", "NotGiven")


def _given(inputs: Mapping[str, Any], answered: bool) -> tuple[str, list[Message] | None]:
    """Return the name of the argument with the messages, and the messages."""
    for name in (*_GIVEN_AS, *_alone(inputs)):
        value = inputs.get(name)
        if isinstance(value, dict) and name == "input":  # LangChain's prompt value
            value = value.get("messages")
        if isinstance(value, str) and value and answered:
            return name, [{"role": "user", "content": value}]
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            messages = [message for item in value for message in _messages(item)]
            if messages:
                return name, [*message_parts.instructions(value), *messages]
    return "", None


def _alone(inputs: Mapping[str, Any]) -> list[str]:
    """Return the agent's own argument with the prompt: the only list of messages, or the only text. Empty if several
    arguments qualify, so that all stay together in ``inputs``."""
    name, chats = asked_as(inputs), [name for name, value in inputs.items() if _is_chat(value)]
    names = chats if name is None else [*chats, name]
    return names if len(names) == 1 else []


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and isinstance(one.get("role"), str) and "content" in one for one in value)
    )


def _messages(item: Mapping[str, Any]) -> Iterable[Message]:
    """Convert an item of a conversation: a message, a tool call or a tool result; return nothing for other items."""
    kind = item.get("type")
    if kind == "function_call":
        return [{"role": "assistant", "content": None, "tool_calls": [_call(item, item.get("call_id"))]}]
    if kind == "function_call_output":
        return [{"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))}]
    if isinstance(item.get("parts"), list) and item.get("kind") in ("request", "response"):
        return message_parts.read(item)
    role = item.get("role")
    if not isinstance(role, str):
        role = _ROLES.get(str(kind).lower())
        item = {name: item[name] for name in _OF_MESSAGES if name in item}
    return [] if role is None else _spoken(_MEMBERS.get(role, role), item)


def _spoken(role: str, item: Mapping[str, Any]) -> list[Message]:
    """Convert a message; tool results inside as content blocks become separate messages."""
    message: Message = {
        name: value for name, value in item.items() if value is not None and name not in ("type", "role", "content")
    }
    asked = item["tool_calls"] if isinstance(item.get("tool_calls"), list) else []
    calls = [_call(call, call.get("id")) for call in asked if isinstance(call, dict)]
    blocks = item.get("content")
    kept, results, thoughts = blocks, [], []
    if isinstance(blocks, list):
        kept = []
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_use":
                calls.append(_call(block, block.get("id")))
            elif kind == "tool_result":
                content = _content(block.get("content"))
                results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
            elif kind == "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            elif kind == "redacted_thinking":  # encrypted: nothing to read
                thoughts.append("(redacted)")
            else:
                kept.append(block)
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    else:
        message.pop("tool_calls", None)
    content = _content(kept) if kept != [] else None
    if results and not content:
        return results
    return [*results, {"role": role, "content": content, **message}]


def _call(item: Mapping[str, Any], identity: Any) -> Message:
    """Convert a tool call to the form of chat completions."""
    function = item.get("function") if isinstance(item.get("function"), dict) else item
    assert isinstance(function, dict)
    arguments = next((function[key] for key in ("arguments", "args", "input") if key in function), "")
    return message_parts.tool_call(identity, function.get("name"), arguments)


def _content(value: Any) -> Any:
    """Join content to text if all blocks are text."""
    if isinstance(value, list) and value and all(_text(block) is not None for block in value):
        return "".join(_text(block) or "" for block in value)
    return value


def _text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict) or block.get("type") in ("image", "image_url", "input_image"):
        return None
    return block["text"] if isinstance(block.get("text"), str) else None


def _answer(output: Any) -> Message | None:
    """Return the assistant's message in the result of the call."""
    if isinstance(output, str):
        return {"role": "assistant", "content": output}
    if not isinstance(output, dict):
        return None
    if isinstance(output.get("parts"), list) and output.get("kind") == "response":
        return _last(message_parts.read(output))
    choices, items = output.get("choices"), output.get("output")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        if isinstance(message, dict):
            return _last(_spoken("assistant", message))
        text = choices[0].get("text")
        return {"role": "assistant", "content": text} if isinstance(text, str) else None
    if isinstance(output.get("message"), dict):
        return _last(_spoken("assistant", output["message"]))
    if isinstance(items, list):
        return _joined([message for item in items if isinstance(item, dict) for message in _messages(item)])
    if output.get("role") in ("assistant", "ASSISTANT") or _ROLES.get(str(output.get("type")).lower()) == "assistant":
        message = {name: output[name] for name in ("type", "content", "tool_calls", "refusal") if name in output}
        return _last(_spoken("assistant", message))
    said = answered_as(output)
    if said is None or "role" in output:
        return None
    return _last(_spoken("assistant", {"content": output[said], "tool_calls": output.get("tool_calls")}))


def _last(messages: list[Message]) -> Message | None:
    return messages[-1] if messages else None


def _joined(messages: list[Message]) -> Message | None:
    """Join the parts of an answer to a single message."""
    if not messages:
        return None
    texts = [message["content"] for message in messages if isinstance(message.get("content"), str)]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    answer: Message = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    return {**answer, "tool_calls": calls} if calls else answer


def _usage(span: Span) -> None:
    """Set token counts, unless the tokens themselves were recorded."""
    for name in _USAGE:
        usage = span.output.get(name) if isinstance(span.output, dict) else None
        if not isinstance(usage, dict):
            continue
        if span.prompt_tokens is None:
            span.prompt_tokens = _prompt_tokens(usage)
        if span.response_tokens is None:
            span.response_tokens = _count(usage, _WRITTEN)
        details = next((usage[key] for key in ("prompt_tokens_details", "input_tokens_details") if key in usage), None)
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cache_read_input_tokens")
        if isinstance(cached, int):
            span.attributes.setdefault("cached_tokens", cached)
        return


def _prompt_tokens(usage: Mapping[str, Any]) -> int | None:
    """Return the tokens of the whole prompt: Anthropic's ``input_tokens`` exclude tokens read from or written to a
    cache."""
    count = _count(usage, _READ)
    if count is None or "prompt_tokens" in usage:
        return count
    return count + sum(_count(usage, (name,)) or 0 for name in _CACHED)


def _count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((usage[name] for name in names if type(usage.get(name)) is int and usage[name] >= 0), None)


def _from_output(output: Any, key: str) -> Any:
    if not isinstance(output, dict):
        return None
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    if key == "finish_reason":
        return first.get(key) or output.get("stop_reason") or _broken_off(output)
    return output.get(key)


def _broken_off(output: Any) -> Any:
    """Return why a Response ended early, in the words of chat completions; None for any other result."""
    if not isinstance(output, dict) or output.get("status") != "incomplete":
        return None
    details = output.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return "length" if reason == "max_output_tokens" else reason


_TOKENS = ("prompt_token_ids", "token_ids")
_FORMS = frozenset({"choices", "output", "message", "parts", "role"})
"""Members of results that have their answer elsewhere."""


def _rest(span: Span) -> Any:
    """Return the rest of the result without answer, usage, and tokens that are in fields of their own."""
    output = span.output
    if not isinstance(output, dict):
        return None
    choices = output.get("choices")
    tokens = _TOKENS if span.prompt_ids is not None or span.response_ids is not None else ()
    gone = {"type", "output", "message", "parts", "content", "role", "tool_calls", *_USAGE, *tokens}
    if answered_as(output) == "text" and _FORMS.isdisjoint(output):
        gone.add("text")
    rest = {name: value for name, value in output.items() if name not in gone and value is not None}
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        del rest["choices"]
        told = {"type", "index", "message", "text", "finish_reason", *tokens}
        rest |= {name: value for name, value in choices[0].items() if name not in told and value is not None}
    return rest or None
