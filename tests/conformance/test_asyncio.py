"""Tasks, timeouts, cancellation and thread pools: the host's control flow is its own, the spans say what happened."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from autotrace.spool.records import Close, Open

from .conftest import Host

SOURCE = """
import asyncio
log = []
async def hangs(name="it"):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        log.append((name, "cancelled", error.args))
        raise
    finally:
        log.append((name, "left"))
async def shielded():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "went on"
async def fails():
    await asyncio.sleep(0)
    raise ValueError("no")
async def stream():
    try:
        yield 1
        await asyncio.Event().wait()
    finally:
        log.append("stream left")
async def works(x):
    await asyncio.sleep(0)
    return x
def leaf(x):
    return x
def outer(call):
    return call()
async def async_outer(call):
    return await call()
"""
NAMES = ("hangs", "shielded", "fails", "stream", "works", "leaf", "outer", "async_outer")


@pytest.fixture
def module(host: Host) -> ModuleType:
    host.watch(*(f"tasks.{name}" for name in NAMES))
    return host.load("tasks", SOURCE)


async def test_wait_for_cancels_and_the_inner_span_says_so(host: Host, module: ModuleType) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(module.hangs(), 0.01)
    assert module.log == [("it", "cancelled", ()), ("it", "left")]
    assert host.statuses() == ["CANCELLED"]


async def test_gather_hands_on_the_first_error_and_leaves_the_others_running(host: Host, module: ModuleType) -> None:
    hanging = asyncio.create_task(module.hangs())
    with pytest.raises(ValueError, match="no"):
        await asyncio.gather(module.fails(), hanging)
    assert not hanging.done()
    hanging.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert host.statuses() == ["ERROR", "CANCELLED"]
    assert module.log[0] == ("it", "cancelled", ("enough",))


async def test_a_coroutine_that_swallows_its_cancellation_is_ok(host: Host, module: ModuleType) -> None:
    task = asyncio.create_task(module.shielded())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "went on" and not task.cancelled()
    assert host.statuses() == ["OK"]


if sys.version_info >= (3, 11):

    async def test_a_task_group_cancels_the_rest(host: Host, module: ModuleType) -> None:
        with pytest.raises(ExceptionGroup) as caught:  # noqa: F821 - Python 3.11
            async with asyncio.TaskGroup() as group:
                group.create_task(module.hangs("a"))
                group.create_task(module.fails())
        assert [type(error) for error in caught.value.exceptions] == [ValueError]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await module.hangs("b")
        assert sorted(host.statuses()) == ["CANCELLED", "CANCELLED", "ERROR"]


async def test_a_stream_cancelled_while_it_waits(host: Host, module: ModuleType) -> None:
    async def take() -> None:
        async for _ in module.stream():
            pass

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(take(), 0.01)
    assert module.log == ["stream left"] and host.statuses() == ["CANCELLED"]


async def test_concurrent_calls_keep_their_own_parents(host: Host, module: ModuleType) -> None:
    async def one(x: int) -> Any:
        return await module.async_outer(lambda: module.works(x))

    assert await asyncio.gather(*(one(x) for x in range(50))) == list(range(50))
    opens = host.records(Open)
    roots = {record.span: record.trace for record in opens if record.parent == 0}
    assert len(roots) == 50
    assert all(roots[record.parent] == record.trace for record in opens if record.parent)
    assert {record.status for record in host.records(Close)} == {"OK"}


def _by_run_in_executor(module: ModuleType, pool: ThreadPoolExecutor) -> Any:
    async def inside() -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, module.leaf, 1)

    return asyncio.run(module.async_outer(inside))


def _by_default_executor(module: ModuleType, pool: ThreadPoolExecutor) -> Any:
    async def inside() -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, module.leaf, 1)

    return asyncio.run(module.async_outer(inside))


def _by_to_thread(module: ModuleType, pool: ThreadPoolExecutor) -> Any:
    async def inside() -> Any:
        return await asyncio.to_thread(module.leaf, 1)

    return asyncio.run(module.async_outer(inside))


def _by_submit(module: ModuleType, pool: ThreadPoolExecutor) -> Any:
    return module.outer(lambda: pool.submit(module.leaf, 1).result())


def _by_map(module: ModuleType, pool: ThreadPoolExecutor) -> Any:
    return module.outer(lambda: next(iter(pool.map(module.leaf, [1]))))


@pytest.mark.parametrize(
    "way", [_by_run_in_executor, _by_default_executor, _by_to_thread, _by_submit, _by_map], ids=lambda way: way.__name__
)
def test_work_in_a_thread_pool_is_a_child_of_the_call_that_submitted_it(
    host: Host, module: ModuleType, way: Any
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # the thread is there before the span
        assert way(module, pool) == 1
        root, leaf = host.records(Open)
        assert (leaf.trace, leaf.parent) == (root.trace, root.span)
        pool.submit(module.leaf, 2).result()
    assert host.records(Open)[-1].parent == 0, "the span stayed behind in the pool's thread"


def test_only_the_span_goes_along_not_the_hosts_context(host: Host, module: ModuleType) -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="unset")
    mine.set("the submitter's")
    with ThreadPoolExecutor(1) as pool:
        assert module.outer(lambda: pool.submit(mine.get).result()) == "unset"
        assert module.outer(lambda: pool.submit(lambda: mine.set("the worker's")).result()) is not None
        assert pool.submit(mine.get).result() == "the worker's"


def test_errors_of_submitted_work_are_the_hosts(host: Host, module: ModuleType) -> None:
    def fails() -> None:
        raise KeyError("k")

    with ThreadPoolExecutor(1) as pool:
        error = module.outer(lambda: pool.submit(fails).exception())
        assert type(error) is KeyError
        with pytest.raises(TypeError):
            pool.submit()  # type: ignore[call-arg]
        pool.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            module.outer(lambda: pool.submit(fails))


def test_a_plain_thread_belongs_to_the_call_that_started_it(host: Host, module: ModuleType) -> None:
    def inside() -> None:
        thread = threading.Thread(target=module.leaf, args=(1,))
        thread.start()
        thread.join()

    module.outer(inside)
    outer, leaf = host.records(Open)
    assert (outer.parent, leaf.parent, leaf.trace) == (0, outer.span, outer.trace)
