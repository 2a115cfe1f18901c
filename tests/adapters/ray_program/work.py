"""What the traced Ray program does; ``leaf``, ``outer`` and ``stream`` are in its spec."""

from __future__ import annotations

import asyncio
import time

import ray


def leaf(name: str) -> str:
    return name


def outer(name: str, call) -> str:
    return call(name)


@ray.remote
class Sync:
    def call(self, name: str) -> str:
        return leaf(name)

    def stream(self, name: str):
        yield leaf(name)


@ray.remote(max_concurrency=8)
class Async:
    async def call(self, name: str) -> str:
        await asyncio.sleep(0.05)  # so that several calls are inside at once
        return leaf(name)


@ray.remote(max_concurrency=4)
class Threaded:
    def call(self, name: str) -> str:
        time.sleep(0.05)
        return leaf(name)


@ray.remote
class Relay:
    """An actor that calls another actor."""

    def __init__(self, other) -> None:
        self.other = other

    async def call(self, name: str) -> str:
        return await self.other.call.remote(name)


@ray.remote
def task(name: str, *rest: str, **options: str) -> str:
    return leaf(name)


@ray.remote
def generator_task(name: str):
    yield leaf(name)


def setup_tracing() -> None:
    """Startup hook for Ray's own tracing."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
