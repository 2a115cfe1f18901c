"""What the model may call, and what its answers are worth."""

from __future__ import annotations

import re
from typing import Any


def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: First number.
        b: Second number.

    Returns:
        The sum.
    """
    return str(int(a) + int(b))


async def subtract(a: int, b: int) -> str:
    """Subtract the second number from the first.

    Args:
        a: First number.
        b: Second number.

    Returns:
        The difference.
    """
    return str(int(a) - int(b))


def is_correct(completions: list[Any], answer: list[int], **_: Any) -> list[float]:
    """1 for `#### <answer>` in the last message."""
    texts = [completion[-1].get("content") or "" for completion in completions]
    return [float(bool(re.search(rf"#### {number}\b", text))) for text, number in zip(texts, answer, strict=True)]


async def used_a_tool(completions: list[Any], **_: Any) -> list[float]:
    """0.1 for each result of a tool (a coroutine, as a judge would be)."""
    return [0.1 * sum(message["role"] == "tool" for message in completion) for completion in completions]
