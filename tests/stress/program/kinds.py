"""Functions of every kind, which the program calls and autotrace records. Each counts how often its body ran."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from threading import get_native_id
from typing import Any

KINDS = (
    *("root", "plain", "coroutine", "generator", "asynchronous", "manager", "asynchronous_manager", "Thing.method"),
    *("returns_generator", "returns_coroutine", "returns_asynchronous", "returns_manager", "Stream.chunks"),
    *("cleanup", "handled"),
)
ran: dict[str, list[None]] = {name: [] for name in KINDS}
"""By name, an entry for each time: ``append`` is one step, whichever thread or finalizer takes it."""
finalized_in: set[int] = set()
"""Threads in which finalizers ran, by the system's numbers."""
seen: ContextVar[Any] = ContextVar("seen", default=None)
"""A variable of the host."""


def root(work: Any, *args: Any) -> Any:
    """One trajectory."""
    ran["root"].append(None)
    return work(*args)


def plain(x: int) -> int:
    ran["plain"].append(None)
    return x + 1


async def coroutine(x: int, pause: Any = None) -> int:
    ran["coroutine"].append(None)
    if pause is not None:
        await pause
    return plain(x) + 1


def generator(x: int) -> Iterator[int]:
    ran["generator"].append(None)
    try:
        for i in range(x):
            yield plain(i)
    finally:
        plain(x)


async def asynchronous(x: int) -> AsyncIterator[int]:
    ran["asynchronous"].append(None)
    try:
        for i in range(x):
            yield plain(i)
    finally:
        plain(x)


@contextlib.contextmanager
def manager(x: int) -> Iterator[int]:
    ran["manager"].append(None)
    try:
        yield plain(x)
    finally:
        plain(x)


@contextlib.asynccontextmanager
async def asynchronous_manager(x: int) -> AsyncIterator[int]:
    ran["asynchronous_manager"].append(None)
    try:
        yield plain(x)
    finally:
        await coroutine(x)


class Thing:
    """An object with a recorded method."""

    def __init__(self, value: int) -> None:
        self.value = value

    def method(self, x: int) -> int:
        ran["Thing.method"].append(None)
        return plain(self.value) + x


def returns_generator(x: int) -> Iterator[int]:
    ran["returns_generator"].append(None)
    return (plain(i) for i in range(x))


def returns_coroutine(x: int) -> Any:
    ran["returns_coroutine"].append(None)
    return coroutine(x)


def returns_asynchronous(x: int) -> AsyncIterator[int]:
    ran["returns_asynchronous"].append(None)
    return asynchronous(x)


def returns_manager(x: int) -> Any:
    ran["returns_manager"].append(None)
    return manager(x)


class Stream:
    """A client's stream refers to itself, so only a collection takes the stream away."""

    def __init__(self, x: int) -> None:
        self.iteration = self.chunks(x)

    def chunks(self, x: int) -> Iterator[int]:
        ran["Stream.chunks"].append(None)
        yield from range(x)


def cleanup(x: int) -> int:
    """What finalizers call."""
    ran["cleanup"].append(None)
    return plain(x)


def handled(x: int) -> int:
    """What the signal handler calls."""
    ran["handled"].append(None)
    return plain(x)


class Cycle:
    """Garbage for the collector, with a finalizer that calls recorded functions."""

    def __init__(self, *held: Any) -> None:
        self.held = (self, *held)

    def __del__(self) -> None:
        finalized_in.add(get_native_id())
        assert cleanup(1) == 2


class Setting(Cycle):
    """The same; its finalizer sets a variable of the host, too: for good, and for a while."""

    def __del__(self) -> None:
        seen.set([object()])
        token = seen.set(object())
        super().__del__()
        seen.reset(token)
