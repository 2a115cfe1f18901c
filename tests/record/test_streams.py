"""Generators: what their caller sees of them, when their span ends, and what it is the parent of."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.record import context
from autotrace.spool.records import Close, Open

from .conftest import Recorder


async def chunks(count: int) -> AsyncGenerator[Any, None]:
    for number in range(count):
        await asyncio.sleep(0)
        yield SimpleNamespace(number=number, finished=number == count - 1)


async def test_a_stream_ends_at_its_final_item_and_not_when_its_caller_lets_go(recorder: Recorder) -> None:
    generate = recorder.wrap(chunks, key="generate", role="engine", final=("item.finished",))
    single = generate(1)
    assert (await single.__anext__()).finished
    (close,) = recorder.records(Close)
    assert (close.status, close.items) == ("OK", 1)
    await single.aclose()
    assert [item.number async for item in generate(5)] == [0, 1, 2, 3, 4]
    assert [(close.status, close.items) for close in recorder.records(Close)] == [("OK", 1), ("OK", 5)]


async def test_final_is_found_behind_attributes_keys_and_alternatives(recorder: Recorder) -> None:
    async def nested(count: int) -> AsyncGenerator[Any, None]:
        for number in range(count):
            yield {"meta_info": {"finish_reason": {"type": "stop"} if number == 2 else None}}

    async def changing() -> AsyncGenerator[Any, None]:
        yield []
        yield {"done": False}
        yield SimpleNamespace(done=True)
        yield "after"

    for number, (function, arguments, final) in enumerate(
        [(nested, (5,), ("item.meta_info.finish_reason",)), (changing, (), ("item.finished", "item.done"))]
    ):
        stream = recorder.wrap(function, key=str(number), final=final)(*arguments)
        for _ in range(3):
            await stream.__anext__()
        assert (recorder.records(Close)[number].status, recorder.records(Close)[number].items) == ("OK", 3)
        await stream.aclose()
    assert len(recorder.records(Close)) == 2


@pytest.mark.parametrize("final", [(), ("item.finished",)])
async def test_a_dropped_and_a_cancelled_stream_are_cancelled(recorder: Recorder, final: tuple[str, ...]) -> None:
    released: list[str] = []

    async def endless() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield SimpleNamespace(finished=False)
                await asyncio.sleep(0)
        finally:
            released.append("released")

    traced = recorder.wrap(endless, key="endless", final=final)
    dropped = traced()
    await dropped.__anext__()
    del dropped
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)

    async def use() -> None:
        async for _ in traced():
            pass

    task = asyncio.create_task(use())
    await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert released == ["released"] * 2
    assert [close.status for close in recorder.records(Close)] == ["CANCELLED", "CANCELLED"]


async def test_what_a_generator_calls_is_below_it_and_what_its_caller_calls_is_not(recorder: Recorder) -> None:
    def tool() -> None: ...

    traced = recorder.wrap(tool, key="tool")

    async def agent() -> AsyncGenerator[int, None]:
        for number in range(3):
            traced()
            yield number

    def turns() -> Generator[int, None, None]:
        for number in range(3):
            traced()
            yield number

    async for _ in recorder.wrap(agent, key="agent")():
        assert context.current.get() is None
        traced()
    for _ in recorder.wrap(turns, key="turns")():
        assert context.current.get() is None
        traced()
    opens = recorder.records(Open)
    streams = [record for record in opens if recorder.names()[record.target].endswith(("agent", "turns"))]
    assert [sum(record.parent == stream.span for record in opens) for stream in streams] == [3, 3]
    assert sum(record.parent == 0 for record in opens) == 2 + 6


async def test_what_an_engine_calls_before_its_first_item_is_below_it(recorder: Recorder) -> None:
    seen: list[Any] = []

    async def generate() -> AsyncGenerator[Any, None]:
        for number in range(3):
            seen.append(context.current.get())
            yield SimpleNamespace(finished=number == 2)

    stream = recorder.wrap(generate, key="generate", final=("item.finished",))()
    async for _ in stream:
        assert context.current.get() is None
    (opened,) = recorder.records(Open)
    assert seen[0].id == opened.span and seen[1:] == [None, None]


async def test_a_coroutine_that_returns_a_stream_is_the_parent_of_what_the_stream_does(recorder: Recorder) -> None:
    generate = recorder.wrap(chunks, key="generate", final=("item.finished",))

    async def serve() -> AsyncGenerator[str, None]:
        async def events() -> AsyncGenerator[str, None]:
            async for item in generate(3):
                yield f"data: {item.number}"

        return events()

    assert [event async for event in await recorder.wrap(serve, key="serve")()] == ["data: 0", "data: 1", "data: 2"]
    outer, inner = recorder.records(Open)
    assert (inner.trace, inner.parent) == (outer.trace, outer.span)
    assert [close.status for close in recorder.records(Close)] == ["OK", "OK"]


async def echo() -> AsyncGenerator[Any, Any]:
    received: Any = None
    while True:
        try:
            received = yield received
        except ValueError as error:
            received = f"caught {error}"
        if received == "stop":
            return


@pytest.mark.parametrize("final", [(), ("item.finished",)])
async def test_what_is_sent_and_thrown_arrives(recorder: Recorder, final: tuple[str, ...]) -> None:
    traced = recorder.wrap(echo, key="echo", final=final)()
    assert await traced.__anext__() is None
    assert [await traced.asend(value) for value in ("a", "b")] == ["a", "b"]
    assert await traced.athrow(ValueError("x")) == "caught x"
    assert await traced.asend("c") == "c"
    with pytest.raises(KeyError):
        await traced.athrow(KeyError("out"))
    ended = recorder.wrap(echo, key="ended", final=final)()
    await ended.__anext__()
    with pytest.raises(StopAsyncIteration):
        await ended.asend("stop")
    assert [close.status for close in recorder.records(Close)] == ["ERROR", "OK"]


@pytest.mark.parametrize("ends", ["closed", "shut down"])
def test_an_asynchronous_generator_whose_loop_is_gone(recorder: Recorder, ends: str) -> None:
    """A closed loop closes nothing, so no ``finally`` runs; the call ends when the generator is dropped."""

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
        finally:
            done.append(ends)

    async def first(stream: AsyncGenerator[int, None]) -> int:
        return await stream.__anext__()

    def outcome(function: Callable[[], AsyncGenerator[int, None]]) -> list[str]:
        done.clear()
        loop = asyncio.new_event_loop()
        stream = function()
        assert loop.run_until_complete(first(stream)) == 0
        if ends == "shut down":
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        del stream
        gc.collect()
        return [*done]

    done: list[str] = []
    bare = outcome(numbers)
    assert bare == ([] if ends == "closed" else [ends])
    assert outcome(recorder.wrap(numbers, key="numbers")) == bare
    (close,) = recorder.records(Close)
    assert (close.status, close.attributes) == ("CANCELLED", {"outcome": "dropped"})
