"""Chunks of LangChain's chat models (``AIMessageChunk``) put together into the message, as ``invoke`` returns it."""

from __future__ import annotations

from typing import Any

from autotrace.record.object_fields import member, members
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.tool_call_chunks import ToolCalls
from autotrace.record.yielded import NO_KEEPER, Keeper, Texts, Yielded

KIND = "AIMessageChunk"
"""What such a chunk stores under ``type``."""
_get = dict.get


class MessageChunks(Yielded):
    """Text and reasoning are joined, tool calls by their index; usage is summed, as LangChain adds chunks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._content, self._reasoning = Texts(limits.string), Texts(limits.string)
        self._calls = ToolCalls(limits)
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
            call = members(piece)
            self._calls.add(_get(call, "index"), _get(call, "id"), _get(call, "name"), _get(call, "args"))
        for name, count in members(_get(chunk, "usage_metadata")).items():
            if type(count) is int:
                self._usage[name] = self._usage.get(name, 0) + count
        told = _get(chunk, "response_metadata")
        if type(told) is dict and told:
            self._told.update(snapshot(told, Limits(2, 64, 256)))
        self.done = self.done or _get(chunk, "chunk_position") == "last"
        return NO_KEEPER

    def value(self) -> Any:
        """The message, with what ``result`` paths read of one."""
        message: dict[str, Any] = {"role": "assistant", "content": self._content.joined() or ""}
        if (reasoning := self._reasoning.joined()) is not None:
            message["reasoning_content"] = reasoning
        if calls := self._calls.so_far():
            message["tool_calls"] = [{"id": id, "name": name, "args": arguments} for id, name, arguments in calls]
        if self._usage:
            message["usage_metadata"] = self._usage
        if self._told:
            message["response_metadata"] = self._told
        return message
