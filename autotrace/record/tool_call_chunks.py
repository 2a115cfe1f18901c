"""Tool calls that come in pieces, put together by their index."""

from __future__ import annotations

from typing import Any

from autotrace.record.snapshot import Limits
from autotrace.record.yielded import Texts

MAX_CALLS = 256


class ToolCall:
    """One of them, so far."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, limits: Limits) -> None:
        self.id: Any = None
        self.name = Texts(limits.string)
        self.arguments = Texts(limits.string)


class ToolCalls:
    """Those of one answer, in the order in which they began."""

    __slots__ = ("_by_index", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_index: dict[Any, ToolCall] = {}

    def add(self, index: Any, identity: Any, name: Any, arguments: Any) -> None:
        """Take a piece. One without an index is a call of its own."""
        number = index if type(index) in (int, str) else len(self._by_index)
        call = self._by_index.get(number)
        if call is None:
            if len(self._by_index) >= MAX_CALLS:
                return
            call = self._by_index[number] = ToolCall(self._limits)
        if type(identity) is str and identity:
            call.id = identity
        call.name.add(name)
        call.arguments.add(arguments)

    def so_far(self) -> list[tuple[Any, str | None, str]]:
        """Of each call its id, its name and its arguments."""
        return [(call.id, call.name.joined(), call.arguments.joined() or "") for call in [*self._by_index.values()]]
