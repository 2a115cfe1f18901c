"""Functions that return a generator which has been advanced already: it goes on where it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any

from . import report


def _echo() -> Generator[str, str, str]:
    received = yield "ready"
    while received != "end":
        received = yield f"echo {received}"
    return "over"


async def _async_echo() -> AsyncGenerator[str, str]:
    received = yield "ready"
    while received != "end":
        received = yield f"echo {received}"


def prepared() -> Generator[str, str, str]:
    """A coroutine in the old sense: advanced to its first yield."""
    generator = _echo()
    next(generator)
    return generator


async def async_prepared() -> AsyncGenerator[str, str]:
    """The same, asynchronous."""
    generator = _async_echo()
    await generator.asend(None)  # type: ignore[arg-type]
    return generator


def finished() -> Generator[str, str, str]:
    """A generator that has nothing more to say."""
    generator = _echo()
    next(generator)
    generator.close()
    return generator


def main(variant: str) -> None:
    """``generator``, ``async-generator``, ``finished``."""
    seen: list[Any] = []
    if variant == "generator":
        generator = prepared()
        seen += [generator.send("a"), generator.send("b")]
        try:
            generator.send("end")
        except StopIteration as stop:
            seen.append(stop.value)
    elif variant == "finished":
        seen.append(list(finished()))
    else:
        seen += asyncio.run(_use())
    report(seen=seen)


async def _use() -> list[str]:
    generator = await async_prepared()
    seen = [await generator.asend("a"), await generator.asend("b")]
    await generator.aclose()
    return seen
