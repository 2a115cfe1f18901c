"""Chunks of LangChain's chat models (``AIMessageChunk``) put together into the message, as ``invoke`` returns it."""

from __future__ import annotations

from typing import Any

from autotrace.record.object_fields import member, members
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.yielded import NO_KEEPER, Keeper, Texts, Yielded

KIND = "AIMessageChunk"
"""What such a chunk stores under ``type``."""
MAX_CALLS = 256
_get = dict.get


class _Call:
    __slots__ = ("arguments", "id", "name")

    def __init__(self, limits: Limits) -> None:
        self.id: Any = None
        self.name = Texts(limits.string)
        self.arguments = Texts(limits.string)


class MessageChunks(Yielded):
    """Text and reasoning are joined, tool calls by their index; usage is summed, as LangChain adds chunks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._content, self._reasoning = Texts(limits.string), Texts(limits.string)
        self._calls: dict[Any, _Call] = {}
        self._usage: dict[str, int] = {}
        self._told: dict[str, Any] = {}

    def add(self, item: Any) -> Keeper:
        """Take a chunk."""
        chunk = members(item)
        content = _get(chunk, "content")
        for block in content if type(content) is list else (content,):
            self._content.add(block if type(block) is str else member(block, "text"))
            self._reasoning.add(member(block, "thinking") or member(block, "reasoning"))
        self._reasoning.add(member(_get(chunk, "additional_kwargs"), "reasoning_content"))
        pieces = _get(chunk, "tool_call_chunks")
        for piece in pieces if type(pieces) is list else ():
            self._add_call(members(piece))
        for name, count in members(_get(chunk, "usage_metadata")).items():
            if type(count) is int:
                self._usage[name] = self._usage.get(name, 0) + count
        told = _get(chunk, "response_metadata")
        if type(told) is dict and told:
            self._told.update(snapshot(told, Limits(2, 64, 256)))
        self.done = self.done or _get(chunk, "chunk_position") == "last"
        return NO_KEEPER

    def _add_call(self, piece: dict[str, Any]) -> None:
        index = _get(piece, "index")
        number = index if type(index) in (int, str) else len(self._calls)
        call = self._calls.get(number)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                return
            call = self._calls[number] = _Call(self._limits)
        identity = _get(piece, "id")
        call.id = identity if type(identity) is str and identity else call.id
        call.name.add(_get(piece, "name"))
        call.arguments.add(_get(piece, "args"))

    def value(self) -> Any:
        """The message, with what ``result`` paths read of one."""
        message: dict[str, Any] = {"role": "assistant", "content": self._content.joined() or ""}
        if (reasoning := self._reasoning.joined()) is not None:
            message["reasoning_content"] = reasoning
        if self._calls:
            message["tool_calls"] = [
                {"id": call.id, "name": call.name.joined(), "args": call.arguments.joined() or ""}
                for call in [*self._calls.values()]
            ]
        if self._usage:
            message["usage_metadata"] = self._usage
        if self._told:
            message["response_metadata"] = self._told
        return message
