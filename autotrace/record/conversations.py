"""Prepare values for the spool that the caller encoded (``record.pickled``): read back, bounded, without secrets. Runs
on the flusher's thread.

An agent passes the whole conversation at every turn. So the messages of a list are cleaned separately, and a message is
cleaned only once: the result is remembered under the whole content of the message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.record.pickled import Pickled
from autotrace.record.snapshot import MAX_NODES, PER_NODE, Limits, snapshot, snapshot_below
from autotrace.redact.redactor import Redactor

MAX_REMEMBERED = 4 << 20
"""Limits the bytes of remembered messages, twice: the newest messages, and the messages before."""
OVERHEAD = 300
"""Counts the bytes of memory that a remembered message takes besides the content."""
_NOT_ENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""Lists the errors that msgspec raises for objects, lone surrogates, numbers of more than 64 bits, and too deeply
nested values."""


class _Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Holds a message as the message may be written."""

    encoded: msgspec.Raw
    nodes: int
    """Counts the nodes that the message takes from ``snapshot.MAX_NODES``."""


class Conversations:
    """Cleans pickled values; remembers messages, up to a limit in bytes."""

    def __init__(self, redactor: Redactor, limits: Limits) -> None:
        self._redactor = redactor
        self._limits = limits
        self._encode = msgspec.msgpack.Encoder().encode
        self._newest: dict[bytes, _Message] = {}
        self._older: dict[bytes, _Message] = {}
        self._size = 0
        """Counts the bytes of the newest messages."""

    def clean(self, name: str, pickled: Pickled) -> Any:
        """Return the value ready to be written, as if ``snapshot`` had copied and the redactor had cleaned the
        value."""
        value = pickled.load()
        if (type(value) is list or type(value) is tuple) and self._redactor.is_by_item(name) and self._limits.depth > 0:
            messages = self._messages(value)
            if messages is not None:
                return messages
        return self._redactor.clean(name, snapshot(value, self._limits))

    def _messages(self, value: Any) -> list[msgspec.Raw] | None:
        """Clean the messages of a list of dicts; None for anything else, and for a list with more nodes than the
        limit."""
        encode = self._encode
        cleaned = []
        nodes = 1 + len(value) // PER_NODE
        try:
            for item in value:
                if type(item) is not dict:
                    return None
                content = encode(item)
                message = self._newest.get(content)
                if message is None:
                    message = self._remembered(content, item)
                nodes += message.nodes
                cleaned.append(message.encoded)
        except _NOT_ENCODABLE:
            return None
        return cleaned if nodes < MAX_NODES else None

    def _remembered(self, content: bytes, item: dict[Any, Any]) -> _Message:
        """Return the message with this content and remember the message among the newest, where the message is
        missing."""
        message = self._older.get(content)
        if message is None:
            copied, nodes = snapshot_below(item, self._limits)
            encoded = self._encode(self._redactor.without_secrets(copied))
            message = _Message(msgspec.Raw(content if encoded == content else encoded), nodes)
        self._size += len(content) + OVERHEAD + (0 if message.encoded is content else len(message.encoded))
        if self._size > MAX_REMEMBERED:
            self._older, self._newest = self._newest, {}
            self._size = 0
        self._newest[content] = message
        return message
