"""Build the calls of a rollout from the contents of a file: messages, or tokens with a mask."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import groupby, pairwise
from typing import Any

from autotrace.foreign.whole_prompts import WholePrompts
from autotrace.trajectory.jsonable import known, loaded
from autotrace.trajectory.markup import MARKUPS, Message, prompt_messages, response_message
from autotrace.trajectory.model import ERROR, OK, Span, Trajectory
from autotrace.trajectory.span_text import message_text, one_line

MOST = 10_000
"""Maximum calls of a rollout; further calls are left out, with a note."""
NAMES, ERRORS = 2_000, 32_000
"""Limits the characters of an attribute or a name, and of an error, which many rollouts or turns may share."""
GAP = 4
"""Tokens in a row without the mask that separate two turns: a chat template writes more between two turns."""


class SpanCollector:
    """Collect calls: the root first, the others below in the order of addition. If a file has no times, a start is a
    number that keeps the order, and no call has an end."""

    def __init__(self, name: str, start_ns: int | None = None, end_ns: int | None = None) -> None:
        self.root = Span("0" * 15 + "1", None, name, "trajectory", name, start_ns or 0, end_ns, OK)
        self.spans = [self.root]
        self.notes: list[str] = []
        self.asked: dict[str, Span] = {}
        """Id of a call -> the tool call that has no answer yet."""
        self._prompts = WholePrompts()
        self._before: list[int] = []
        """Prompt and response of the turn ``_base``."""
        self._base: str | None = None

    def call(self, name: str, role: str, start_ns: int | None = None, **fields: Any) -> Span | None:
        """Add a call; return None if the rollout has too many calls."""
        if len(self.spans) >= MOST:
            self.notes[:] = [f"the file has more calls of this rollout than the {MOST:,} that are read"]
            return None
        number, at = len(self.spans) + 1, self.spans[-1].start_ns + 1 if start_ns is None else start_ns
        name = name[:NAMES]
        span = Span(f"{number:016x}", self.root.span_id, name, role, name, at, status=OK, **fields)
        self.spans.append(span)
        return span

    # -- messages ------------------------------------------------------------------------------------------------------

    def conversation(self, messages: Iterable[Any], model: str | None = None) -> Span | None:
        """Add a turn for each answer among ``messages``, and a call for each tool result. Returns the last turn."""
        calls = [call for _, call in self.spoken(messages, model)]
        return next((call for call in reversed(calls) if call is not None and call.role == "llm"), None)

    def spoken(self, messages: Iterable[Any], model: str | None = None) -> Iterator[tuple[Any, Span | None]]:
        """Yield each of ``messages``, with the turn of an answer, or the tool call of a result."""
        said: list[Message] = []
        for given in messages:
            if (message := plain(given)) is None:
                continue
            said.append(message)
            call = None
            if message["role"] == "assistant":
                own = given.get("model")
                call = self.turn(said, own if isinstance(own, str) else model)
            elif message["role"] == "tool":
                call = self.result(message)
            yield given, call
        if said and all(message["role"] != "assistant" for message in said):
            self.root.inputs["prompt"] = "\n".join(map(message_text, said))

    def turn(self, said: Sequence[Message], model: str | None = None, **fields: Any) -> Span | None:
        """Add the model's call that answered with the last of ``said``, and the requested tool calls."""
        answer = said[-1]
        whole = self._prompts.has_room(said)
        answers = (at + 1 for at in range(len(said) - 2, -1, -1) if said[at]["role"] == "assistant")
        messages = list(said if whole else said[next(answers, 0) :])
        before = None if whole else next((span for span in reversed(self.spans) if span.role == "llm"), None)
        span = self.call(model or "model", "llm", messages=messages, **fields)
        if span is not None and before is not None:
            self._prompts.cut(span, said, before)
        text, calls = answer.get("content"), answer.get("tool_calls", ())
        if span is not None and isinstance(text, str) and text and not calls:
            span.response_text = text
        for number, asked in enumerate(calls):
            name, arguments = asked["function"]["name"], asked["function"]["arguments"]
            inputs = _object(arguments) or ({"arguments": arguments} if arguments.strip("{} ") else {})
            tool = self._tool(name, inputs=inputs)
            if tool is not None:
                self.asked[asked["id"] or f"{tool.span_id} {number}"] = tool
        return span

    def result(self, message: Message) -> Span | None:
        """Set a tool's answer on the call that the message names, else on the first call without an answer."""
        named = message.get("tool_call_id")
        key = named if named in self.asked else None if named else next(iter(self.asked), None)
        tool = self.asked.pop(key or "", None) or self._tool(message.get("name") or "tool")
        if tool is not None:
            tool.output = message.get("content")
        return tool

    def requested(self, name: str, id: Any, start_ns: int | None) -> Span | None:
        """Return the tool call without an answer that has this id, else this name; otherwise add a call."""
        of_name = (key for key, tool in self.asked.items() if tool.name == name)
        tool = self.asked.pop(str(id), None) or self.asked.pop(next(of_name, ""), None) or self._tool(name)
        if tool is not None:
            tool.start_ns = start_ns or tool.start_ns
        return tool

    def _tool(self, name: str, **fields: Any) -> Span | None:
        return self.call(name, "tool", attributes={"tool_name": name[:NAMES]}, **fields)

    # -- tokens --------------------------------------------------------------------------------------------------------

    def tokens(
        self, prompt: list[int] | None, response: list[int], mask: list[int] | None, logprobs: list[float] | None,
        said: Sequence[Message] = (),
    ) -> None:  # fmt: skip
        """Add a turn for each part of ``response`` that ``mask`` marks as the model's; ``logprobs`` cover all tokens.
        ``said``: the same conversation, whose messages the turns get if the number of answers matches."""
        mask = [1 if one else 0 for one in mask] if mask is not None and len(mask) == len(response) else None
        parts = _parts(mask or [1] * len(response))
        if len(parts) == sum(message["role"] == "assistant" for message in said):
            self.conversation(said)
        else:
            for _ in parts[:MOST]:
                self.call("model", "llm")
        base, kept, last = None, 0, 0
        turns = [span for span in self.spans if span.role == "llm"]
        for turn, (begin, end) in zip(turns, parts, strict=False):
            if prompt is not None or base is not None:
                turn.new_prompt_ids = new = [*(prompt or () if base is None else ()), *response[last:begin]]
                turn.prompt_base, turn.prompt_keep, turn.prompt_tokens = base, kept, kept + len(new)
            turn.response_ids, turn.response_tokens = response[begin:end], end - begin
            turn.logprobs = logprobs[begin:end] if logprobs is not None and len(logprobs) == len(response) else None
            turn.response_mask = mask[begin:end] if mask is not None else None
            base, kept, last = turn.span_id, (turn.prompt_tokens or begin) + end - begin, end
        if mask is not None:
            self.root.response_ids, self.root.response_mask, self.root.response_tokens = response, mask, len(response)

    def ids(self, turn: Span, prompt: list[int] | None, response: list[int] | None, logprobs: Any) -> None:
        """Set the tokens of a turn with a known whole prompt: the part kept from the previous turn, and the new
        part."""
        if prompt is not None:
            kept = len(os.path.commonprefix([prompt, self._before]))  # noqa: RUF071 - of lists, item by item
            turn.prompt_base, turn.prompt_keep = (self._base if kept else None), kept
            turn.new_prompt_ids, turn.prompt_tokens = prompt[kept:], len(prompt)
        if response is not None:
            turn.response_ids, turn.response_tokens = response, len(response)
            turn.logprobs = numbers(logprobs) if len(listed(logprobs)) == len(response) else None
            self._before, self._base = [*(prompt or ()), *response], turn.span_id

    # -- the whole -----------------------------------------------------------------------------------------------------

    def failed(self, kind: Any, message: Any = "", stack: Any = "") -> None:
        """Set the error with which the rollout ended."""
        self.root.status = ERROR
        stack = one_line(stack or "")[-ERRORS:]
        self.root.error = one_line(kind or "error")[:NAMES], one_line(message or "")[:ERRORS], stack

    def judged(self, truth: Any) -> None:
        """Set the answer that the reward was given."""
        if truth not in (None, "", []):
            self.root.inputs["reward_model"] = {"ground_truth": truth}

    def finished(self, reason: Any) -> None:
        """Set why the last turn ended, in the words of engines; None: not known."""
        last = next((span for span in reversed(self.spans) if span.role == "llm"), None)
        if last is not None and isinstance(reason, str):
            last.attributes["finish_reason"] = reason

    def trajectory(self, attributes: Mapping[str, Any], facts: Mapping[str, Any]) -> Trajectory:
        """Return the rollout so far. None means unknown and is left out; the reader sets the ids."""
        named = {name: value[:NAMES] if isinstance(value, str) else value for name, value in known(attributes).items()}
        return Trajectory("", "", self.spans, named, known(facts), self.notes + self._prompts.finish())


def _parts(mask: list[int]) -> list[tuple[int, int]]:
    """Return begin and end of the model's parts; the whole response if the mask marks nothing."""
    parts: list[tuple[int, int]] = []
    at = 0
    for value, run in groupby(mask):
        count = sum(1 for _ in run)
        if value and parts and at - parts[-1][1] < GAP:
            parts[-1] = (parts[-1][0], at + count)
        elif value:
            parts.append((at, at + count))
        at += count
    return parts or [(0, len(mask))]


def _object(text: str) -> dict[str, Any] | None:
    """Parse a text as JSON; return the object, or None for any other value."""
    value = loaded(text)
    return value if isinstance(value, dict) else None


def plain(given: Any) -> Message | None:
    """Convert a message of any known form to a chat-completions message; None for anything else."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        return None
    content = given.get("content")
    thoughts = [one_line(given[name]) for name in _THOUGHT[:2] if given.get(name)][:1]
    if isinstance(content, list):
        thoughts += [
            one_line(thought) for part in content for name in _THOUGHT[1:] if (thought := mapped(part).get(name))
        ]
        content = [part for part in content if not any(mapped(part).get(name) for name in _THOUGHT[1:])]
        texts = [part_text(part) for part in content]
        said = [
            part if text is None else {"type": "text", "text": text} for part, text in zip(content, texts, strict=True)
        ]
        content = "\n".join(text or "" for text in texts) if content and None not in texts else said
    elif content is not None:
        content = one_line(part_text(content) or content)
    message: Message = {"role": given["role"], "content": content}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    message |= {name: given[name] for name in ("tool_call_id", "name") if isinstance(given.get(name), str)}
    if calls := [call for one in listed(given.get("tool_calls")) if (call := _call(one)) is not None]:
        message["tool_calls"] = calls
    return message


def part_text(part: Any) -> str | None:
    """Return the text of a part of a message: a text, or an object with ``text``, or with ``value`` beside ``type``."""
    if isinstance(part, dict):
        named = ("value", "content") if part.get("type") in ("text", "output_text") else ()
        part = next((part[name] for name in ("text", *named) if part.get(name) is not None), None)
    return part if isinstance(part, str) else None


_THOUGHT = ("reasoning_content", "reasoning", "thinking")
_NAME = ("name", "function_name", "tool_name", "tool", "function")
_ARGUMENTS = ("arguments", "input", "args", "parameters", "kwargs")
_ID = ("id", "tool_call_id", "call_id", "tool_use_id")
"""Spellings of the parts of a message and of a tool call."""


def _call(given: Any) -> Message | None:
    """Convert a tool call, also written as text: OpenAI's call has name and arguments within ``function``, other calls
    beside the id."""
    given = _object(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return None
    within = mapped(given, "function") or given
    name = next((within[name] for name in _NAME if isinstance(within.get(name), str)), None)
    arguments: Any = next((within[name] for name in _ARGUMENTS if within.get(name) is not None), {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    id = next((given[name] for name in _ID if isinstance(given.get(name), str)), None)
    return {"id": id, "type": "function", "function": {"name": one_line(name or "tool"), "arguments": text}}


# -- text of a chat template -------------------------------------------------------------------------------------------

_ROLE = re.compile(r"(?:\A|\n)(system|user|assistant|tool)\n")
_TOOL = re.compile(r"\n?(?:user|tool)\n(?=<tool_response>)")
_TOLD = re.compile(r"(?<=</tool_response>)\s*\n?assistant\n")
"""Begin and end of the answers of tools, searched one after the other: one pattern for both would search the whole rest
from each begin."""

_BEGUN = re.compile(r"\s*(?:<think>\s*(?:</think>\s*)?)?")


def from_text(prompt: str, response: str) -> list[Message]:
    """Parse the messages of a prompt and a response. Marks of a chat template name the roles. If special tokens were
    left out (veRL's dumps), ChatML leaves ``user`` on a line of its own, and Qwen's tool results are within
    ``<tool_response>``; otherwise the prompt is a message and the response another message."""
    if any(markup.opening in prompt and markup.begin.search(prompt) for markup in MARKUPS):
        return _marked(prompt, response)
    messages: list[Message] = []
    parts = list(_ROLE.finditer(prompt))
    if parts and parts[0].start() == 0 and parts[-1][1] == "assistant":
        for part, following in pairwise(parts):
            messages.append({"role": part[1], "content": prompt[part.end() : following.start()].strip("\n")})
    elif prompt:
        messages.append({"role": "user", "content": prompt})
    at = 0
    while (begin := _TOOL.search(response, at)) and (end := _TOLD.search(response, begin.end())):
        results = prompt_messages(f"<|im_start|>user\n{response[begin.end() : end.start()]}<|im_end|>")
        messages += [response_message(response[at : begin.start()]), *results]
        at = end.end()
    return [*messages, response_message(response[at:])]


def _marked(prompt: str, response: str) -> list[Message]:
    messages, begins = prompt_messages(prompt), prompt_messages(response, prompt)
    if messages and messages[-1]["role"] == "assistant" and _BEGUN.fullmatch(messages[-1]["content"]):
        messages.pop()  # templates begin the thought
    begins[:1] = begins[:1] if begins and begins[0]["role"] == "assistant" else [response_message(response)]
    return [*messages, *begins]


# -- values ------------------------------------------------------------------------------------------------------------


def moment(value: Any) -> int | None:
    """Convert seconds since 1970, or an ISO 8601 time, to nanoseconds."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
            value = (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
        at = int(value * 1e9) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    except (ValueError, OverflowError):
        return None
    return at if 0 < at < 1 << 62 else None


def listed(value: Any) -> list[Any]:
    """Return ``value`` if ``value`` is a list, else an empty list."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in ``value``, if ``value`` is a list."""
    return [one for one in listed(value) if isinstance(one, dict)]


def mapped(value: Any, *names: str) -> dict[str, Any]:
    """Return ``value``, or the part below ``names``, if an object; else an empty dict."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def numbers(value: Any) -> list[Any] | None:
    """Return ``value`` if ``value`` is a list of numbers alone."""
    return value if isinstance(value, list) and set(map(type, value)) <= {int, float, bool} else None


def token_ids(value: Any) -> list[int] | None:
    """Return ``value`` if ``value`` is a list of token ids."""
    found = numbers(value)
    if found is None or any(type(one) is not int or not 0 <= one < 1 << 31 for one in found):
        return None
    return found
