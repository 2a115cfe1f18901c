"""Classes that Ray makes actors of."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import ray


class Base:
    def inherited(self, x: int) -> int:
        return x

    def overridden(self, x: int) -> int:
        return x


class Sync(Base):
    """Made an actor by ``ray.remote(Sync)``, after it was imported."""

    def __init__(self) -> None:
        self.callback = self.work

    def work(self, x: int) -> int:
        return x + 1

    def by_callback(self, x: int) -> int:
        return self.callback(x)

    def overridden(self, x: int) -> int:
        return super().overridden(x)

    def stream(self, x: int) -> Iterator[int]:
        # not ``yield from range(x)``: Ray sends its statistics into the generator, which a range cannot take
        for number in range(x):  # noqa: UP028
            yield number

    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def made(cls, x: int) -> int:
        return x

    def fails(self, x: int) -> None:
        raise KeyError(x)


@ray.remote
class Decorated(Base):
    """An actor from the start: Ray copies its methods, and the inherited ones, before the module is imported."""

    def work(self, x: int) -> int:
        return x + 1


@ray.remote
class Async:
    """Ray looks at its methods to tell that they share one event loop."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def wait(self, x: int) -> int:
        await self.waiting.wait()
        return x

    async def release(self) -> bool:
        self.waiting.set()
        return inspect.iscoroutinefunction(self.wait)

    async def stream(self, x: int) -> AsyncIterator[int]:
        for number in range(x):
            yield number


def function(x: int) -> int:
    return x + 1


@ray.remote
def task(x: int) -> int:
    return x + 1


TASKS = {"task": task}


def calls_back(function: Any, x: int) -> Any:
    return function(x)
