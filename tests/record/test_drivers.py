"""What a plain function returns to be run later is driven only if nobody has begun to."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from autotrace.record import drivers
from autotrace.spool.records import Close

from .conftest import Recorder


def numbers() -> Generator[Any, Any, str]:
    received = yield 1
    yield received
    return "end"


async def async_numbers() -> AsyncGenerator[Any, Any]:
    received = yield 1
    yield received


@types.coroutine
def waits() -> Generator[Any, Any, Any]:
    return (yield "waiting")


async def waiting() -> Any:
    return await waits()


def test_a_generator_that_was_advanced_is_passed_on(recorder: Recorder) -> None:
    def advanced() -> Any:
        generator = numbers()
        next(generator)
        return generator

    generator = recorder.wrap(advanced, key="advanced")()
    assert generator.send("sent") == "sent"
    with pytest.raises(StopIteration, match="end"):
        next(generator)
    assert [close.status for close in recorder.records(Close)] == ["OK"]


def test_an_async_generator_that_was_advanced_is_passed_on(recorder: Recorder) -> None:
    def advanced() -> Any:
        generator = async_numbers()
        with pytest.raises(StopIteration):
            generator.__anext__().send(None)
        return generator

    async def use() -> None:
        generator = recorder.wrap(advanced, key="advanced")()
        assert await generator.asend("sent") == "sent"
        await generator.aclose()

    asyncio.run(use())
    assert [close.status for close in recorder.records(Close)] == ["OK"]


@pytest.mark.parametrize("make", [waiting, waits], ids=["coroutine", "awaitable generator"])
def test_a_coroutine_that_was_advanced_is_passed_on(recorder: Recorder, make: Any) -> None:
    def advanced() -> Any:
        coroutine = make()
        assert coroutine.send(None) == "waiting"
        return coroutine

    coroutine = recorder.wrap(advanced, key="advanced")()
    with pytest.raises(StopIteration, match="sent"):
        coroutine.send("sent")
    assert [close.status for close in recorder.records(Close)] == ["OK"]


def test_what_is_unstarted_is_told_from_the_rest() -> None:
    for make in (numbers, async_numbers, waiting, waits):
        made = make()
        assert drivers.is_unstarted(made)
        step = made if not hasattr(made, "__anext__") else made.__anext__()
        with contextlib.suppress(StopIteration):
            step.send(None)
        assert not drivers.is_unstarted(made)
        if hasattr(made, "close"):
            made.close()
            assert not drivers.is_unstarted(made)


def test_what_was_not_advanced_is_driven(recorder: Recorder) -> None:
    generator = recorder.wrap(lambda: numbers(), key="fresh")()
    assert not recorder.records(Close)
    assert list(generator) == [1, None]
    assert [(close.status, close.items) for close in recorder.records(Close)] == [("OK", 2)]
