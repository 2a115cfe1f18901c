"""Which way what is yielded is put together: by the role of the call, and by what comes first."""

from __future__ import annotations

from typing import Any

from autotrace.record import chat_chunks
from autotrace.record.snapshot import Limits
from autotrace.record.yielded import Last, Words, Yielded


def begin(role: str, first: Any, limits: Limits) -> Yielded:
    """What puts together a stream that begins with ``first``, which is not taken yet."""
    if role == "llm":
        if type(first) is str:
            return Words(limits)
        chat = chat_chunks.of(first, limits)
        if chat is not None:
            return chat
    return Last(limits)
