"""Which way what is yielded is put together: by the role of the call, and by what comes first."""

from __future__ import annotations

from typing import Any

from autotrace.record import chat_chunks
from autotrace.record.snapshot import Limits
from autotrace.record.yielded import Items, Last, Words, Yielded


def begin(role: str, first: Any, limits: Limits, items: int = 0) -> Yielded:
    """What puts together a stream that begins with ``first``, which is not taken yet. ``items``: how many to keep of
    what is no chat; 0: the last one alone."""
    if role == "llm":
        if type(first) is str and not items:
            return Words(limits)
        chat = chat_chunks.of(first, limits)
        if chat is not None:
            return chat
    return Items(items, limits) if items else Last(limits)
