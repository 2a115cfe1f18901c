"""Join the yielded chunks of a model's answer into the answer, in the form that the same call returns without a stream.

The form is recognised by the fields of an item, not by the class, because compatible servers and clients have classes
of their own. Forms: chat completions (``choices`` with a ``delta`` or ``text``), Responses (events ``response.*``),
messages (``message_start``, ``content_block_delta``, ...), LangChain's ``AIMessageChunk`` and smolagents'
``ChatMessageStreamDelta``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from autotrace.record.object_fields import member, members
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.yielded import NO_KEEPER, Items, Keeper, Last, Texts, Words, Yielded, numbers

MAX_PARTS = 256
"""Limits the choices, content blocks or tool calls that are kept of an answer."""
_get = dict.get
_REASONING = ("reasoning_content", "reasoning", "thinking")
_MESSAGE_CHUNK = "AIMessageChunk"
"""Holds the ``type`` of LangChain's chunks."""
_DELTA = ("content", "tool_calls", "token_usage")
"""Lists the fields of smolagents' deltas."""


def begin(role: str, first: Any, limits: Limits, items: int = 0) -> Yielded:
    """Choose the collector for a stream that begins with ``first``, which is not taken yet. ``items``: the number of
    items to keep of a stream that is not a chat; 0 keeps the last item alone."""
    if role == "llm":
        if type(first) is str and not items:
            return Words(limits)
        chat = _chat(first, limits)
        if chat is not None:
            return chat
    return Items(items, limits) if items else Last(limits)


def _chat(first: Any, limits: Limits) -> Yielded | None:
    if type(member(first, "choices")) is list:
        return Completion(limits)
    kind = member(first, "type")
    if type(kind) is str and kind.startswith("response."):
        return Response(limits)
    if kind == _MESSAGE_CHUNK:
        return MessageChunks(limits)
    if kind == "message_start":
        return Message(limits)
    stored = members(first)
    return MessageDeltas(limits) if all(name in stored for name in _DELTA) else None


class _PartialToolCall:
    """Holds the pieces of a tool call so far."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, limits: Limits) -> None:
        self.id: Any = None
        self.name, self.arguments = Texts(limits.string), Texts(limits.string)


class _Answer:
    """Collect one of several answers. Texts are joined, tool calls are joined by index, and counts are summed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.content, self.reasoning, self.refusal = (Texts(limits.string) for _ in range(3))
        self.finish_reason: Any = None
        self.token_ids: list[int] | None = None
        self.usage: dict[str, int] = {}
        self._calls: dict[Any, _PartialToolCall] = {}

    def add_calls(self, pieces: Any, arguments: str = "arguments") -> None:
        """Take pieces of tool calls. A piece without an index is a call of its own."""
        for piece in pieces if type(pieces) is list else ():
            said = members(piece)
            function = said if (inner := _get(said, "function")) is None else members(inner)
            number = index if type(index := _get(said, "index")) in (int, str) else len(self._calls)
            call = self._calls.get(number)
            if call is None:
                if len(self._calls) >= MAX_PARTS:
                    return
                call = self._calls[number] = _PartialToolCall(self._limits)
            if type(id := _get(said, "id")) is str and id:
                call.id = id
            call.name.add(_get(function, "name"))
            call.arguments.add(_get(function, arguments))

    def add_usage(self, usage: Any) -> None:
        """Add counts of tokens."""
        for name, count in members(usage).items():
            if type(count) is int:
                self.usage[name] = self.usage.get(name, 0) + count

    def calls(self) -> list[tuple[Any, str | None, str]]:
        """Return (id, name, arguments) of each tool call."""
        return [(call.id, call.name.joined(), call.arguments.joined() or "") for call in [*self._calls.values()]]

    def message(self) -> dict[str, Any]:
        """Return the message in the form of a chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content.joined()}
        for name, texts in (("reasoning_content", self.reasoning), ("refusal", self.refusal)):
            if (text := texts.joined()) is not None:
                message[name] = text
        if calls := self.calls():
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        return message


class MessageDeltas(Yielded):
    """Join deltas of smolagents' models into the message that ``generate`` returns."""

    def __init__(self, limits: Limits) -> None:
        self._answer = _Answer(limits)

    def add(self, item: Any) -> Keeper:
        """Take a delta."""
        delta = members(item)
        self._answer.content.add(_get(delta, "content"))
        self._answer.add_calls(_get(delta, "tool_calls"))
        self._answer.add_usage(_get(delta, "token_usage"))
        return NO_KEEPER

    def value(self) -> Any:
        """Return the message with the fields that ``result`` paths read."""
        usage = {"token_usage": self._answer.usage} if self._answer.usage else {}
        return {**self._answer.message(), **usage}


class MessageChunks(Yielded):
    """Join chunks of LangChain's chat models into the message that ``invoke`` returns."""

    def __init__(self, limits: Limits) -> None:
        self._answer = _Answer(limits)
        self._told: dict[str, Any] = {}

    def add(self, item: Any) -> Keeper:
        """Take a chunk."""
        chunk, answer = members(item), self._answer
        content = _get(chunk, "content")
        for block in content if type(content) is list else (content,):
            answer.content.add(block if type(block) is str else member(block, "text"))
            answer.reasoning.add(member(block, "thinking") or member(block, "reasoning"))
        answer.reasoning.add(member(_get(chunk, "additional_kwargs"), "reasoning_content"))
        answer.add_calls(_get(chunk, "tool_call_chunks"), "args")
        answer.add_usage(_get(chunk, "usage_metadata"))
        told = _get(chunk, "response_metadata")
        if type(told) is dict and told:
            self._told.update(snapshot(told, Limits(2, 64, 256)))
        self.done = self.done or _get(chunk, "chunk_position") == "last"
        return NO_KEEPER

    def value(self) -> Any:
        """Return the message with the fields that ``result`` paths read."""
        message, calls = self._answer.message(), self._answer.calls()
        message["content"] = message["content"] or ""
        if calls:
            message["tool_calls"] = [{"id": id, "name": name, "args": arguments} for id, name, arguments in calls]
        more = {"usage_metadata": self._answer.usage, "response_metadata": self._told}
        return {**message, **{name: said for name, said in more.items() if said}}


class Completion(Yielded):
    """Join chunks of a chat completion or of a text completion."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._named: dict[str, Any] = {}
        self._usage: Any = None
        self._prompt_ids: list[int] | None = None
        self._choices: dict[Any, _Answer] = {}

    def add(self, item: Any) -> Keeper:
        """Take a chunk."""
        chunk = item if type(item) is dict else members(item)
        if not self._named:
            self._named = {name: text for name in ("id", "model") if type(text := _get(chunk, name)) is str}
        if (usage := _get(chunk, "usage")) is not None:
            self._usage = snapshot(usage, Limits(3, 64, 256))
        choices = _get(chunk, "choices")
        if type(choices) is list:
            if self._prompt_ids is None and (ids := _get(chunk, "prompt_token_ids")) is not None:
                self._prompt_ids = numbers(ids, None)
            for choice in choices:
                self._add(choice if type(choice) is dict else members(choice))
        return NO_KEEPER

    def _add(self, chunk: dict[str, Any]) -> None:
        index = _get(chunk, "index")
        number = index if type(index) is int else 0
        choice = self._choices.get(number)
        if choice is None:
            if len(self._choices) >= MAX_PARTS:
                return
            choice = self._choices[number] = _Answer(self._limits)
        delta = _get(chunk, "delta")
        if type(delta) is not dict:
            delta = members(delta)
        if (text := _get(delta, "content")) is not None:
            choice.content.add(text)
        if not delta:
            choice.content.add(_get(chunk, "text"))
        elif len(delta) > 1 or text is None:
            self._add_rest(choice, delta)
        if (ids := _get(chunk, "token_ids")) is not None:
            choice.token_ids = numbers(ids, choice.token_ids)
        reason = _get(chunk, "finish_reason")
        if type(reason) is str:
            choice.finish_reason = reason
            self.done = True

    @staticmethod
    def _add_rest(choice: _Answer, delta: dict[str, Any]) -> None:
        """Take the fields of a delta other than the text."""
        if (text := _get(delta, "refusal")) is not None:
            choice.refusal.add(text)
        for name in _REASONING:
            if (text := _get(delta, name)) is not None:
                choice.reasoning.add(text)
                break  # a server that has both names says the same twice
        choice.add_calls(_get(delta, "tool_calls"))

    def value(self) -> Any:
        """Return the completion in the form that the call returns without a stream."""
        completion: dict[str, Any] = {**self._named, "object": "chat.completion", "choices": []}
        for index, choice in [*self._choices.items()]:
            answer = {"index": index, "message": choice.message(), "finish_reason": choice.finish_reason}
            if choice.token_ids is not None:
                answer["token_ids"] = choice.token_ids
            completion["choices"].append(answer)
        if self._prompt_ids is not None:
            completion["prompt_token_ids"] = self._prompt_ids
        if self._usage is not None:
            completion["usage"] = self._usage
        return completion


class _Blocks(Yielded):
    """Collect an answer of several parts; deltas name a part by index."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._blocks: dict[Any, tuple[dict[str, Any], Texts]] = {}

    def _block(self, event: Any, index: str, begun: Any) -> tuple[dict[str, Any], Texts] | None:
        number = member(event, index)
        block = self._blocks.get(number) if type(number) is int else None
        if block is None and len(self._blocks) < MAX_PARTS:
            block = (snapshot(begun, Limits(4, 64, self._limits.string)) or {}, Texts(self._limits.string))
            self._blocks[number if type(number) is int else 0] = block
        return block if block is not None and type(block[0]) is dict else None


class Response(_Blocks):
    """Collect events of a Response. The last event has the whole response; a response that broke off is joined from the
    deltas."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._response: Any = None

    def add(self, item: Any) -> Keeper:
        """Take an event."""
        kind = member(item, "type")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._response, self.done = snapshot(member(item, "response"), self._limits), True
        elif kind == "response.output_item.added":
            self._block(item, "output_index", member(item, "item"))
        elif kind in ("response.output_text.delta", "response.function_call_arguments.delta"):
            block = self._block(item, "output_index", {"type": "message", "role": "assistant"})
            if block is not None:
                block[1].add(member(item, "delta"))
        elif kind == "response.created" and self._response is None:
            self._response = snapshot(member(item, "response"), Limits(1, 64, 256))
        return NO_KEEPER

    def value(self) -> Any:
        """Return the response in the form that the call returns without a stream."""
        if self.done:
            return self._response
        output = []
        for block, texts in [*self._blocks.values()]:
            text = texts.joined() or ""
            if block.get("type") == "function_call":
                output.append({**block, "arguments": text})
            else:
                output.append({**block, "content": [{"type": "output_text", "text": text}]})
        named = self._response if type(self._response) is dict else {}
        return {**{name: named[name] for name in ("id", "model") if name in named}, "output": output}


class Message(_Blocks):
    """Collect events of a message with content blocks."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._message: dict[str, Any] = {}

    def add(self, item: Any) -> Keeper:
        """Take an event."""
        handler = self._HANDLERS.get(kind) if type(kind := member(item, "type")) is str else None
        if handler is not None:
            handler(self, item)
        return NO_KEEPER

    def _start(self, event: Any) -> None:
        message = snapshot(member(event, "message"), Limits(3, 64, 256))
        self._message = message if type(message) is dict else {}

    def _begin_block(self, event: Any) -> None:
        self._block(event, "index", member(event, "content_block"))

    def _delta(self, event: Any) -> None:
        block, delta = self._block(event, "index", {"type": "text"}), member(event, "delta")
        if block is not None:
            for name in ("text", "partial_json", "thinking"):
                block[1].add(member(delta, name))

    def _end(self, event: Any) -> None:
        delta = member(event, "delta")
        reason = member(delta, "stop_reason")
        if type(reason) is str:
            self._message["stop_reason"], self.done = reason, True
        usage, before = snapshot(member(event, "usage"), Limits(2, 64, 256)), self._message.get("usage")
        if type(usage) is dict:
            counts = {name: count for name, count in usage.items() if count is not None}
            self._message["usage"] = {**(before if type(before) is dict else {}), **counts}

    _HANDLERS: ClassVar[dict[str, Callable[[Message, Any], None]]] = {
        "message_start": _start,
        "content_block_start": _begin_block,
        "content_block_delta": _delta,
        "message_delta": _end,
    }

    def value(self) -> Any:
        """Return the message in the form that the call returns without a stream."""
        content = []
        for block, texts in [*self._blocks.values()]:
            text = texts.joined()
            name = {"tool_use": "input", "thinking": "thinking"}.get(block.get("type", ""), "text")
            content.append(block if text is None else {**block, name: text})
        return {"role": "assistant", **self._message, "content": content}
