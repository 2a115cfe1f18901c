"""Deltas of smolagents' models (``ChatMessageStreamDelta``) put together into the message that ``generate`` returns."""

from __future__ import annotations

from typing import Any

from autotrace.record.object_fields import member, members
from autotrace.record.snapshot import Limits
from autotrace.record.tool_call_chunks import ToolCalls
from autotrace.record.yielded import NO_KEEPER, Keeper, Texts, Yielded

FIELDS = ("content", "tool_calls", "token_usage")
"""What such a delta stores."""
_get = dict.get


class MessageDeltas(Yielded):
    """Text is joined, tool calls by their index; usage is summed, as smolagents sums it."""

    def __init__(self, limits: Limits) -> None:
        self._content = Texts(limits.string)
        self._calls = ToolCalls(limits)
        self._usage: dict[str, int] = {}

    def add(self, item: Any) -> Keeper:
        """Take a delta."""
        delta = members(item)
        self._content.add(_get(delta, "content"))
        pieces = _get(delta, "tool_calls")
        for piece in pieces if type(pieces) is list else ():
            call, function = members(piece), members(member(piece, "function"))
            self._calls.add(_get(call, "index"), _get(call, "id"), _get(function, "name"), _get(function, "arguments"))
        for name, count in members(_get(delta, "token_usage")).items():
            if type(count) is int:
                self._usage[name] = self._usage.get(name, 0) + count
        return NO_KEEPER

    def value(self) -> Any:
        """The message, with what ``result`` paths read of one."""
        message: dict[str, Any] = {"role": "assistant", "content": self._content.joined()}
        if calls := self._calls.so_far():
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        if self._usage:
            message["token_usage"] = self._usage
        return message
