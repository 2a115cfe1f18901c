"""What the caller encoded (``record.pickled``), made ready to be written: read back, bounded, without secrets. Runs on
the flusher's thread.

An agent passes its whole conversation at every turn. So the messages of a list are cleaned one by one, and one that was
cleaned before is not cleaned again: what it became is remembered, by all of its content.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.record.pickled import Pickled
from autotrace.record.snapshot import MAX_NODES, PER_NODE, Limits, snapshot, snapshot_below
from autotrace.redact.redactor import Redactor

MAX_REMEMBERED = 4 << 20
"""Bytes of messages that are remembered, twice: the newest, and those before them."""
OVERHEAD = 300
"""Memory of a remembered message besides its bytes."""
_NOT_ENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What msgspec raises for objects, lone surrogates, numbers of more than 64 bits, and what is nested too deeply."""


class _Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A message as it may be written."""

    encoded: msgspec.Raw
    nodes: int
    """What it takes of ``snapshot.MAX_NODES``."""


class Conversations:
    """Cleans pickled values; remembers messages, up to a limit in bytes."""

    def __init__(self, redactor: Redactor, limits: Limits) -> None:
        self._redactor = redactor
        self._limits = limits
        self._encode = msgspec.msgpack.Encoder().encode
        self._newest: dict[bytes, _Message] = {}
        self._older: dict[bytes, _Message] = {}
        self._size = 0
        """Bytes of the newest."""

    def clean(self, name: str, pickled: Pickled) -> Any:
        """The value ready to be written, as if it had been copied by ``snapshot`` and cleaned by the redactor."""
        value = pickled.load()
        if (
            (type(value) is list or type(value) is tuple)
            and self._redactor.is_by_item(name, value)
            and self._limits.depth > 0
        ):
            messages = self._messages(value)
            if messages is not None:
                return messages
        return self._redactor.clean(name, snapshot(value, self._limits))

    def _messages(self, value: Any) -> list[msgspec.Raw] | None:
        """Of a list of dicts; None for anything else, and for what has more nodes than the limit."""
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
        """The message with this content, which is not among the newest: it is from now on."""
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
