"""A trajectory as one conversation: its messages in order, and the tools that the model was offered.

The last answered LLM call has it: its prompt is everything before its answer. Where tokens were decoded, the messages
are read from the prompt's text by the marks of its chat template; else they are those that were recorded. After a
context that was compacted or rewritten, the conversation is what the model saw in the end.
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
    """What was said."""

    messages: list[Message]
    """Role and content; the last one is the model's. Its calls are in ``tool_calls``, as the chat templates of
    ``transformers`` take them: ``arguments`` is an object. They have the ids that the results of tools refer to, if the
    agent sent some."""
    tools: Tools | None
    """As JSON schemas; None where they are not known, or part of the first message's text."""
    text: list[Message]
    """The same messages with tools and calls in the text, as the model saw and wrote them."""


def conversation(trajectory: Trajectory) -> Conversation | str:
    """The conversation of ``trajectory``, or why it has no conversation."""
    return _last(trajectory, range(1, trajectory.turns + 1))


def conversations(trajectory: Trajectory) -> list[tuple[Chain | None, Conversation]] | str:
    """The conversation of each chain, where it branches; else its own, with None. Or why it has none."""
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
    """That of the last of ``turns`` that was answered."""
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
    """What was said up to the answer of an LLM call, with it; None where that is not known. ``tools``: those that the
    model was offered, where no text says it."""
    return _decoded(span) or _sent(span, tools)


def offered_tools(trajectory: Trajectory) -> list[Tools | None]:
    """For each turn the tools that an agent has sent by then: in its call, or in that of a client below it."""
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
    """Equal where the same was said with the same tools; a trajectory without a conversation is equal to no other."""
    said = conversation(trajectory)
    content: Any = trajectory.trace_id if isinstance(said, str) else [said.text, said.tools]
    return hashlib.blake2b(msgspec.json.encode(jsonable(content)), digest_size=16).digest()


def _decoded(span: Span) -> Conversation | None:
    """The messages of a call with tokens."""
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
    """What the model wrote before, as the prompt has it: one text for each message of role ``assistant``."""
    for markup in MARKUPS:
        parts = list(markup.begin.finditer(prompt))
        for part, following in zip(parts, [*parts[1:], None], strict=False):
            if part["role"].strip().lower() in ("assistant", "model"):
                whole = prompt[part.end() : following.start() if following else len(prompt)]
                yield whole.split(markup.end, 1)[0].strip("\n")
        if parts:
            return


def _sent(span: Span, tools: Tools | None) -> Conversation | None:
    """The messages of a call as the agent sent them; the assembler has added the answer."""
    if answer(span) is None:
        return None
    messages = [_plain(message) for message in span.messages or ()]
    return Conversation([*map(_with_objects, messages)], tools, [*map(_as_text, messages)])


_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def _plain(message: Message) -> Message:
    """A message without what was left empty, and without a client's own fields."""
    kept = {name: message[name] for name in _FIELDS if message.get(name) not in (None, [])}
    return {"role": "user", **kept, "content": kept.get("content", "")}


def _with_objects(message: Message, ids: bool = True) -> Message:
    """The message with the arguments of its calls as objects. ``ids``: its calls have those that the agent sent, to
    which the results of tools refer; a chat template's text has none."""
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
    """``arguments``; of a text what it says as JSON, and the text where a model wrote no JSON."""
    value = loaded(arguments, otherwise=arguments) if isinstance(arguments, str) else arguments
    return {} if value is None else value


def _as_text(message: Message) -> Message:
    """The message with its calls in its content, where they were read from text: in the marks of that template."""
    calls = [_call(call)["function"] for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    content = message.get("content", "")
    if not calls or not isinstance(content, str):
        return {"role": message["role"], "content": content}
    written = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    return {"role": message["role"], "content": "\n".join([*([content] if content else []), *written])}


_END = re.compile(r"(?:<[|｜][^<>]{1,40}[|｜]>|<end_of_turn>|</s>|<eos>)\Z")  # noqa: RUF001 - DeepSeek's marks


def _written(response: str) -> str:
    """What the model wrote, without the mark that ends it."""
    written = response.rstrip()
    return written[: match.start()] if (match := _END.search(written, max(0, len(written) - 44))) else written


def _offered(messages: list[Message]) -> tuple[Tools | None, list[Message]]:
    """The tools that the system prompt lists, and the messages without that list; only if all of it is understood."""
    first = messages[0] if messages else {}
    content = first.get("content") if first.get("role") == "system" else None
    rest, _, offered = (content if isinstance(content, str) else "").partition("# Tools\n")
    written, closed, after = offered.partition("<tools>")[2].partition("</tools>")
    if not closed or not after.rstrip().endswith("</tool_call>"):  # so end the templates of Qwen, Hermes and their kin
        return None, messages
    tools = [loaded(line) for line in written.splitlines() if line.strip()]
    if not tools or not all(isinstance(tool, dict) for tool in tools):
        return None, messages
    return tools, [*([{**first, "content": rest.rstrip()}] if rest.strip() else []), *messages[1:]]
