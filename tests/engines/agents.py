"""A trajectory of the user's own, and an LLM call as veRL's client makes it; both are named in ``agents.yaml``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4


async def conversation(turn: Callable[[int], Awaitable[Any]], uid: str) -> list[Any]:
    """Two turns, one after the other."""
    return [await turn(number) for number in (1, 2)]


async def ask(server: Any, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
    """The server is given a fresh id for every turn, as since veRL 0.7."""
    return await server.generate.remote(
        request_id=uuid4().hex, prompt_ids=prompt_ids, sampling_params=sampling_params, image_data=None, video_data=None
    )
