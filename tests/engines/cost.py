"""What tracing costs a real engine: rounds with and without it take turns, and what its counters add to a step.

Each engine is measured twice. *Live*: as it is, for its throughput. *Replayed*: its front end as it is, while a script
answers every round with what the engine's other processes sent in one real round. They compete for cores and caches
then no longer, and what a request costs the event loop is measured ten times more precisely.

A third kind of round has a generator around the engine's that does nothing but pass its chunks on: what any wrapper
costs, however little it records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import Context, ContextVar
from statistics import mean
from types import CellType, FunctionType
from typing import Any

from autotrace.patch.wrapper import original_code, original_of

REQUESTS, TOKENS = 64, 64
CALLS = 100_000
KINDS = ("with", "without", "passed on")
PAUSE = 0.15
"""Seconds between two rounds: the flusher has written the one before."""


async def take_turns(
    methods: Sequence[tuple[Any, str]], request: Callable[[str, int], Awaitable[int]], rounds: int, prefix: str
) -> dict[str, list[dict[str, float]]]:
    """``rounds`` rounds of each kind (with tracing, without, passed on), of 64 concurrent requests each.

    ``methods`` (class, name) are all that autotrace sees in this process, the generator first. Without tracing, a
    recorded method has its own code again, and a method that is shown to an adapter is the engine's own. ``request``
    (id, number) reads one answer and says how many chunks it had; ids begin with ``prefix``, the kind, and the round.
    Each round: seconds of wall clock, CPU seconds of the event loop's thread and of the process, chunks, and how fast
    the machine was around it.
    """
    traced = [(owner, name, owner.__dict__[name], owner.__dict__[name].__code__) for owner, name in methods]
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    await one_round(request, f"{prefix}-warm")
    try:
        for number in range(rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):
                for owner, name, function, code in traced:
                    bare = original_code(code)
                    function.__code__ = code if kind == "with" else bare
                    setattr(owner, name, function if kind == "with" or bare is not code else function.__wrapped__)
                if kind == "passed on":
                    owner, name, function, _ = traced[0]
                    setattr(owner, name, _passing_on(function))
                await asyncio.sleep(PAUSE)
                found[kind].append(await one_round(request, f"{prefix}-{kind}-{number}"))
    finally:
        for owner, name, function, code in traced:
            setattr(owner, name, function)
            function.__code__ = code
    return found


def _passing_on(original: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncGenerator[Any, None]]:
    async def generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async for chunk in original(*args, **kwargs):
            yield chunk

    return generate


async def one_round(request: Callable[[str, int], Awaitable[int]], name: str) -> dict[str, float]:
    """64 concurrent requests; see ``take_turns``."""
    speeds = [speed_ns()]
    began = time.perf_counter(), time.thread_time(), time.process_time()
    chunks = await asyncio.gather(*(request(f"{name}-{number}", number) for number in range(REQUESTS)))
    ended = time.perf_counter(), time.thread_time(), time.process_time()
    wall, thread, process = (after - before for before, after in zip(began, ended, strict=True))
    speeds.append(speed_ns())
    return {"wall": wall, "thread": thread, "process": process, "chunks": sum(chunks), "speed_ns": mean(speeds)}


def speed_ns() -> float:
    """How fast this machine is right now, as ``benchmarks.measures.speed`` has it: in a context without the engine's
    many variables, which make it slower."""
    variable: ContextVar[int] = ContextVar("speed")

    def measured() -> float:
        began = time.thread_time_ns()
        for _ in range(5_000):
            variable.reset(variable.set(1))
        return (time.thread_time_ns() - began) / 5_000

    return Context().run(measured)


def added(wrapper: Any, *args: Any, result: Any = None) -> float:
    """CPU seconds that ``wrapper``, as it stands on the engine's class, adds to a call: the same code around a function
    that does nothing, less that function alone. The best of five."""

    def nothing(*_: Any, **__: Any) -> Any:
        return result

    original = original_of(wrapper)
    if original is wrapper:  # not recorded, but shown to an adapter
        original = wrapper.__wrapped__
    constants = tuple(nothing if const is original else const for const in wrapper.__code__.co_consts)
    cells = tuple(CellType(nothing) if cell.cell_contents is original else cell for cell in wrapper.__closure__ or ())
    code = wrapper.__code__.replace(co_consts=constants)
    hollow = FunctionType(code, wrapper.__globals__, wrapper.__name__, wrapper.__defaults__, cells)
    hollow.__kwdefaults__ = wrapper.__kwdefaults__
    return max(0.0, min(_timed(hollow, args) for _ in range(5)) - min(_timed(nothing, args) for _ in range(5)))


def _timed(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    began = time.thread_time()
    for _ in range(CALLS):
        function(*args)
    return (time.thread_time() - began) / CALLS
