"""anthropic: raw responses that were not read, and ``messages.stream``, which asks when its context is entered."""

from __future__ import annotations

from autotrace.adapters import later_answers

MANAGERS = (
    ("lib.streaming._messages", "MessageStreamManager", "__enter__"),
    ("lib.streaming._messages", "AsyncMessageStreamManager", "__aenter__"),
    ("lib.streaming._beta_messages", "BetaMessageStreamManager", "__enter__"),
    ("lib.streaming._beta_messages", "BetaAsyncMessageStreamManager", "__aenter__"),
)


def install() -> None:
    """Have calls end with what their raw responses say, or with their streams. Idempotent."""
    later_answers.wait_for("anthropic", (*later_answers.RAW, *MANAGERS))
