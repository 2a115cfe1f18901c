"""Convert a trajectory to a conversation: the messages in order, and the tools that the model was offered.

The last answered LLM call has the conversation: its prompt is everything before its answer. If tokens were decoded, the
messages are parsed from the prompt's text by the marks of its chat template; otherwise the recorded messages are used.
After compaction or a rewrite of the context, the conversation is the context that the model saw in the end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from autotrace.trajectory.chains import Chain, tree_of
from autotrace.trajectory.jsonable import jsonable, loaded
from autotrace.trajectory.markup import MARKUPS, prompt_messages, response_message
from autotrace.trajectory.model import Span, Trajectory, ancestors
from autotrace.trajectory.span_text import answer

Message = dict[str, Any]
Tools = list[dict[str, Any]]

UNDECODED = (
    "their token ids could not be decoded, and no messages were recorded; name their tokenizer with autotrace ship RUN "
    "--tokenizer NAME"
)


@dataclass(frozen=True)
class Conversation:
    """Hold the messages of a conversation."""

    messages: list[Message]
    """Messages with role and content; the last message is the model's. Calls are in ``tool_calls``, as the chat
    templates of ``transformers`` take calls: ``arguments`` is an object. Calls have the ids that tool results refer to,
    if the agent sent ids."""
    tools: Tools | None
    """Tools as JSON schemas; None if unknown, or part of the first message's text."""
    text: list[Message]
    """The same messages with tools and calls in the text, as the model saw and wrote the messages."""


def conversation(trajectory: Trajectory) -> Conversation | str:
    """Return the conversation of ``trajectory``, or the reason why no conversation exists."""
    return _last(trajectory, range(1, trajectory.turns + 1))


def conversations(trajectory: Trajectory) -> list[tuple[Chain | None, Conversation]] | str:
    """Return the conversation of each chain of a branching trajectory; otherwise the only conversation, with None; or
    the reason why no conversation exists."""
    chains = tree_of(trajectory).chains
    if len(chains) < 2:
        whole = conversation(trajectory)
        return whole if isinstance(whole, str) else [(None, whole)]
    told, why = list[tuple[Chain | None, Conversation]](), ""
    for one in chains:
        said = _last(trajectory, one.turns)
        if isinstance(said, str):
            why = said
        else:
            told.append((one, said))
    return told or why


def _last(trajectory: Trajectory, turns: Sequence[int]) -> Conversation | str:
    """Return the conversation of the last answered turn in ``turns``."""
    calls = [(turn - 1, trajectory.llm_spans[turn - 1]) for turn in turns]
    if not calls:
        return "no LLM call was recorded"
    tools = offered_tools(trajectory)
    for number, span in reversed(calls):
        said = conversation_of(span, tools[number])
        if said is not None:
            return said
    tokens = any(span.response_tokens for _, span in calls)
    return UNDECODED if tokens else "no answer of the model was recorded"


def conversation_of(span: Span, tools: Tools | None) -> Conversation | None:
    """Return the conversation up to and including the answer of an LLM call; None if unknown. ``tools``: the offered
    tools, used if no text lists tools."""
    return _decoded(span) or _sent(span, tools)


def offered_tools(trajectory: Trajectory) -> list[Tools | None]:
    """Return for each turn the tools that the agent has sent by then: in its call, or in the call of a client below."""
    turns = {span.span_id: number for number, span in enumerate(trajectory.llm_spans)}
    offered: list[Tools | None] = [None] * len(turns)
    for span in trajectory.spans:
        sent = span.inputs.get("tools") if span.role in ("llm", "engine") else None
        if not isinstance(sent, list) or not sent or not all(isinstance(tool, dict) for tool in sent):
            continue
        asked = next((call for call in chain([span], ancestors(span, trajectory.by_id)) if call.span_id in turns), None)
        if asked is not None:
            offered[turns[asked.span_id]] = sent
    for number in range(1, len(offered)):
        offered[number] = offered[number] or offered[number - 1]
    return offered


def conversation_digest(trajectory: Trajectory) -> bytes:
    """Return a digest that is equal for the same messages with the same tools; without a conversation the digest is
    unique."""
    said = conversation(trajectory)
    content: Any = trajectory.trace_id if isinstance(said, str) else [said.text, said.tools]
    return hashlib.blake2b(msgspec.json.encode(jsonable(content)), digest_size=16).digest()


def _decoded(span: Span) -> Conversation | None:
    """Return the messages of a call with tokens."""
    if span.prompt_text is None or span.response_text is None:
        return None
    prompt, reply = prompt_messages(span.prompt_text), response_message(span.response_text)
    tools, before = _offered([_with_objects(message, ids=False) for message in prompt])
    raw = iter(_earlier_answers(span.prompt_text))
    text = [
        {"role": "assistant", "content": next(raw, message["content"])}
        if message["role"] == "assistant"
        else _as_text(message)
        for message in prompt
    ]
    text.append({"role": "assistant", "content": _written(span.response_text)})
    return Conversation([*before, _with_objects(reply, ids=False)], tools, text)


def _earlier_answers(prompt: str) -> Iterator[str]:
    """Yield the model's earlier texts as the prompt contains them: a text for each message of role ``assistant``."""
    for markup in MARKUPS:
        parts = list(markup.begin.finditer(prompt))
        for part, following in zip(parts, [*parts[1:], None], strict=False):
            if part["role"].strip().lower() in ("assistant", "model"):
                whole = prompt[part.end() : following.start() if following else len(prompt)]
                yield whole.split(markup.end, 1)[0].strip("\n")
        if parts:
            return


def _sent(span: Span, tools: Tools | None) -> Conversation | None:
    """Return the messages of a call as the agent sent the messages; the assembler has added the answer."""
    if answer(span) is None:
        return None
    messages = [_plain(message) for message in span.messages or ()]
    return Conversation([*map(_with_objects, messages)], tools, [*map(_as_text, messages)])


_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def _plain(message: Message) -> Message:
    """Return a message without empty fields and without a client's own fields."""
    kept = {name: message[name] for name in _FIELDS if message.get(name) not in (None, [])}
    return {"role": "user", **kept, "content": kept.get("content", "")}


def _with_objects(message: Message, ids: bool = True) -> Message:
    """Convert the arguments of a message's calls to objects. ``ids``: keep the call ids that the agent sent, to which
    tool results refer; the text of a chat template has no ids."""
    calls = [_call(call, ids) for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest


def _call(call: dict[str, Any], ids: bool = False) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else call
    id = call.get("id")
    return {
        **({"id": id} if ids and isinstance(id, str) else {}),
        "type": "function",
        "function": {"name": str(function.get("name")), "arguments": _object(function.get("arguments"))},
    }


def _object(arguments: Any) -> Any:
    """Parse ``arguments`` as JSON; text that is not JSON stays text."""
    value = loaded(arguments, otherwise=arguments) if isinstance(arguments, str) else arguments
    return {} if value is None else value


def _as_text(message: Message) -> Message:
    """Move the calls of a message into the content, if the calls were read from text: in the marks of that template."""
    calls = [_call(call)["function"] for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    content = message.get("content", "")
    if not calls or not isinstance(content, str):
        return {"role": message["role"], "content": content}
    written = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    return {"role": message["role"], "content": "\n".join([*([content] if content else []), *written])}


_END = re.compile(r"(?:<[|｜][^<>]{1,40}[|｜]>|<end_of_turn>|</s>|<eos>)\Z")  # noqa: RUF001 - DeepSeek's marks


def _written(response: str) -> str:
    """Return the model's text without the end mark."""
    written = response.rstrip()
    return written[: match.start()] if (match := _END.search(written, max(0, len(written) - 44))) else written


def _offered(messages: list[Message]) -> tuple[Tools | None, list[Message]]:
    """Return the tools that the system prompt lists, and the messages without the list; None if any part is unknown."""
    first = messages[0] if messages else {}
    content = first.get("content") if first.get("role") == "system" else None
    rest, _, offered = (content if isinstance(content, str) else "").partition("# Tools\n")
    written, closed, after = offered.partition("<tools>")[2].partition("</tools>")
    if not closed or not after.rstrip().endswith("</tool_call>"):  # the end in templates of Qwen, Hermes and others
        return None, messages
    tools = [loaded(line) for line in written.splitlines() if line.strip()]
    if not tools or not all(isinstance(tool, dict) for tool in tools):
        return None, messages
    return tools, [*([{**first, "content": rest.rstrip()}] if rest.strip() else []), *messages[1:]]
