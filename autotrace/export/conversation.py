"""A trajectory as one conversation: its messages in order, and the tools that the model was offered.

The last answered LLM call has it: its prompt is everything before its answer. Where tokens were decoded, the messages
are read from the prompt's text by the marks of its chat template; else they are those that were recorded. After a
context that was compacted or rewritten, the conversation is what the model saw in the end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from autotrace.ship.assembly.markup import MARKUPS, prompt_messages, response_message
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import answer

Message = dict[str, Any]

UNDECODED = (
    "their token ids could not be decoded, and no messages were recorded; name their tokenizer with autotrace ship RUN "
    "--tokenizer NAME"
)

_TOOLS = re.compile(r"\s*# Tools\n.*?<tools>\s*(?P<tools>.*?)\s*</tools>.*?</tool_call>\s*\Z", re.DOTALL)
"""How the templates of Qwen, Hermes and their kin end a system prompt that offers tools."""


@dataclass(frozen=True)
class Conversation:
    """What was said."""

    messages: list[Message]
    """Role and content; the last one is the model's. Its calls are in ``tool_calls``, as the chat templates of
    ``transformers`` take them: ``arguments`` is an object."""
    tools: list[dict[str, Any]] | None
    """As JSON schemas; None where they are not known, or part of the first message's text."""
    text: list[Message]
    """The same messages with tools and calls in the text, as the model saw and wrote them."""


def conversation(trajectory: Trajectory) -> Conversation | str:
    """The conversation of ``trajectory``, or why there is none."""
    calls = trajectory.llm_spans
    if not calls:
        return "no LLM call was recorded"
    for span in reversed(calls):
        said = conversation_of(span)
        if said is not None:
            return said
    tokens = any(span.response_tokens for span in calls)
    return UNDECODED if tokens else "no answer of the model was recorded"


def conversation_of(span: Span) -> Conversation | None:
    """What was said up to the answer of an LLM call, with it; None where that is not known."""
    return _decoded(span) or _sent(span)


def conversation_digest(trajectory: Trajectory) -> bytes:
    """Equal where the same was said with the same tools; a trajectory without a conversation is equal to no other."""
    said = conversation(trajectory)
    content: Any = trajectory.trace_id if isinstance(said, str) else [said.text, said.tools]
    return hashlib.blake2b(msgspec.json.encode(jsonable(content)), digest_size=16).digest()


def _decoded(span: Span) -> Conversation | None:
    """Of a call with tokens."""
    if span.prompt_text is None or span.response_text is None:
        return None
    prompt, reply = prompt_messages(span.prompt_text), response_message(span.response_text)
    tools, before = _offered([_with_objects(message) for message in prompt])
    raw = iter(_earlier_answers(span.prompt_text))
    text = [
        {"role": "assistant", "content": next(raw, message["content"])}
        if message["role"] == "assistant"
        else _as_text(message)
        for message in prompt
    ]
    text.append({"role": "assistant", "content": _written(span.response_text)})
    return Conversation([*before, _with_objects(reply)], tools, text)


def _earlier_answers(prompt: str) -> Iterator[str]:
    """What the model wrote before, as it stands in the prompt: one text for each message of role ``assistant``."""
    for markup in MARKUPS:
        parts = list(markup.begin.finditer(prompt))
        for part, following in zip(parts, [*parts[1:], None], strict=False):
            if part["role"].strip().lower() in ("assistant", "model"):
                whole = prompt[part.end() : following.start() if following else len(prompt)]
                yield whole.split(markup.end, 1)[0].strip("\n")
        if parts:
            return


def _sent(span: Span) -> Conversation | None:
    """Of a call whose messages were recorded; the assembler has added the answer."""
    if answer(span) is None:
        return None
    messages = [_plain(message) for message in span.messages or ()]
    tools = span.inputs.get("tools")
    offered = tools if isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools) else None
    return Conversation([*map(_with_objects, messages)], offered or None, [*map(_as_text, messages)])


_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def _plain(message: Message) -> Message:
    """A message without what was left empty, and without a client's own fields."""
    kept = {name: message[name] for name in _FIELDS if message.get(name) not in (None, [])}
    return {"role": "user", **kept, "content": kept.get("content", "")}


def _with_objects(message: Message) -> Message:
    """The message with the arguments of its calls as objects, without ids that no template shows."""
    calls = [_call(call) for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else call
    return {
        "type": "function",
        "function": {"name": str(function.get("name")), "arguments": _object(function.get("arguments"))},
    }


def _object(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):  # the model wrote what is no JSON
            return arguments
    return {} if arguments is None else arguments


def _as_text(message: Message) -> Message:
    """The message with its calls in its content, where they were read from text: in the marks of that template."""
    calls = [_call(call)["function"] for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    content = message.get("content", "")
    if not calls or not isinstance(content, str):
        return {"role": message["role"], "content": content}
    written = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    return {"role": message["role"], "content": "\n".join([*([content] if content else []), *written])}


_END = re.compile(r"(?:<[|｜][^<>]{1,40}[|｜]>|<end_of_turn>|</s>|<eos>)?\s*\Z")  # noqa: RUF001 - DeepSeek's marks


def _written(response: str) -> str:
    """What the model wrote, without the mark that ends it."""
    return response[: match.start()] if (match := _END.search(response)) else response


def _offered(messages: list[Message]) -> tuple[list[dict[str, Any]] | None, list[Message]]:
    """The tools that the system prompt lists, and the messages without that list; only if all of it is understood."""
    first = messages[0] if messages else {}
    content = first.get("content") if first.get("role") == "system" else None
    match = _TOOLS.search(content) if isinstance(content, str) else None
    if match is None:
        return None, messages
    try:
        tools = [json.loads(line) for line in match["tools"].splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None, messages
    if not tools or not all(isinstance(tool, dict) for tool in tools):
        return None, messages
    rest = match.string[: match.start()]
    return tools, [*([{**first, "content": rest}] if rest.strip() else []), *messages[1:]]
