"""A trajectory of the user's own, named in ``agents.yaml``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


async def conversation(turn: Callable[[int], Awaitable[Any]], uid: str) -> list[Any]:
    """Two turns, one after the other."""
    return [await turn(number) for number in (1, 2)]
