"""Generators of both kinds, driven every way there is, beside the same generator unwatched."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from autotrace.record import context

from .conftest import Host
from .kinds import ASYNC_GENERATORS, GENERATORS, Kind
from .pair import Pair

Script = tuple[tuple[Any, ...], ...]

SCRIPTS: dict[str, Script] = {
    "next": (("next",), ("next",), ("next",), ("next",)),
    "send": (("next",), ("send", 7), ("next",), ("send", 8), ("send", 9)),
    "send too early": (("send", 7), ("next",)),
    "throw, caught": (("next",), ("throw", lambda: KeyError("k")), ("next",), ("next",)),
    "throw, not caught": (("next",), ("throw", lambda: OSError("o")), ("next",)),
    "throw a type": (("next",), ("throw", lambda: OSError), ("next",)),
    "throw first": (("throw", lambda: OSError("o")), ("next",)),
    "throw StopIteration": (("next",), ("throw", lambda: StopIteration(3)), ("next",)),
    "throw StopAsyncIteration": (("next",), ("throw", lambda: StopAsyncIteration()), ("next",)),
    "throw GeneratorExit": (("next",), ("throw", lambda: GeneratorExit()), ("next",)),
    "close": (("next",), ("close",), ("close",), ("next",)),
    "close first": (("close",), ("next",)),
    "close after the end": (("next",), ("next",), ("next",), ("next",), ("close",)),
    "throw after the end": (("next",), ("next",), ("next",), ("next",), ("throw", lambda: OSError("o"))),
}


def _seen(error: BaseException) -> Any:
    return type(error).__name__, str(error), repr(error.__cause__), repr(error.__context__)


def steps(generator: Any, script: Script) -> list[Any]:
    """What each step of ``script`` gave."""
    seen: list[Any] = []
    for verb, *arguments in script:
        try:
            if verb == "next":
                seen.append(next(generator))
            else:
                # a new error each time: one that is kept keeps the frames it went through
                arguments = [argument() if callable(argument) else argument for argument in arguments]
                seen.append(getattr(generator, verb)(*arguments))
        except BaseException as error:
            seen.append((*_seen(error), getattr(error, "value", None)))
        seen.append(inspect.getgeneratorstate(generator))
    return seen


async def async_steps(generator: Any, script: Script) -> list[Any]:
    seen: list[Any] = []
    verbs = {"next": "__anext__", "send": "asend", "throw": "athrow", "close": "aclose"}
    for verb, *arguments in script:
        try:
            arguments = [argument() if callable(argument) else argument for argument in arguments]
            seen.append(await getattr(generator, verbs[verb])(*arguments))
        except BaseException as error:
            seen.append(_seen(error))
        seen.append((generator.ag_running, generator.ag_frame is None))
    await generator.aclose()
    return seen


@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature:DeprecationWarning")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
@pytest.mark.parametrize("kind", GENERATORS, ids=lambda kind: kind.name)
def test_a_generator_answers_as_it_did(host: Host, kind: Kind, script: Script) -> None:
    pair = Pair(host, kind)

    def observe(module: ModuleType) -> Any:
        module.closed.clear()
        return steps(kind.start(module, 3), script), list(module.closed)

    pair.same(observe)
    assert context.current.get() is None
    assert len(host.opened()) == len(host.statuses())


@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature:DeprecationWarning")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
@pytest.mark.parametrize("kind", ASYNC_GENERATORS, ids=lambda kind: kind.name)
async def test_an_async_generator_answers_as_it_did(host: Host, kind: Kind, script: Script) -> None:
    pair = Pair(host, kind)
    seen = []
    for module in (pair.bare, pair.traced):
        module.closed.clear()
        seen.append((await async_steps(kind.start(module, 3), script), list(module.closed)))
    assert seen[0] == seen[1]
    assert context.current.get() is None
    assert len(host.opened()) == len(host.statuses())


@pytest.mark.parametrize("kind", GENERATORS, ids=lambda kind: kind.name)
def test_a_dropped_generator_is_closed_at_once(host: Host, kind: Kind) -> None:
    pair = Pair(host, kind)

    def observe(module: ModuleType) -> Any:
        module.closed.clear()
        gc.disable()
        try:
            generator = kind.start(module, 3)
            next(generator)
            del generator
            kind.start(module, 3)  # dropped before it began
            return list(module.closed)
        finally:
            gc.enable()

    pair.same(observe)
    assert set(host.statuses()) == {"CANCELLED"}
    assert len(host.opened()) == len(host.statuses())


@pytest.mark.parametrize("kind", ASYNC_GENERATORS, ids=lambda kind: kind.name)
def test_a_dropped_async_generator_is_closed_by_the_loop_once(host: Host, kind: Kind) -> None:
    pair = Pair(host, kind)

    def observe(module: ModuleType) -> Any:
        module.closed.clear()
        troubles: list[Any] = []
        known: list[int] = []

        async def drop() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda loop, trouble: troubles.append(trouble["message"]))
            first, second = kind.start(module, 3), kind.start(module, 3)
            await first.__anext__()
            await second.__anext__()
            known.append(len(loop._asyncgens))  # type: ignore[attr-defined]
            del first
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            module.closed.append("dropped")
            kept.append(second)  # open until loop.shutdown_asyncgens

        kept: list[Any] = []
        asyncio.run(drop())
        return list(module.closed), troubles, known

    pair.same(observe)
    assert host.statuses() == ["CANCELLED", "CANCELLED"]


STUBBORN = """
log = []
def stubborn():
    try:
        yield 1
    except GeneratorExit:
        try:
            yield 2
        finally:
            log.append("finally")
def delegating():
    yield from stubborn()
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("closed", [True, False], ids=["closed, then dropped", "dropped"])
def test_a_generator_that_answers_its_exit_ends_as_one_that_is_passed_on(host: Host, closed: bool) -> None:
    """What stands in ``docs/limits.md``: the interpreter drops a bare one without asking it a second time."""

    def observe(generator: Any) -> None:
        next(generator)
        if closed:
            with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
                generator.close()

    host.watch("stubborn.stubborn")
    module = host.load("stubborn", STUBBORN)
    observe(module.stubborn())
    gc.collect()
    traced = list(module.log)
    bare = host.load("bare", STUBBORN)
    observe(bare.delegating())
    assert traced == bare.log == ["finally"]


def test_what_is_suspended_keeps_nothing_alive(host: Host) -> None:
    """Neither the item it yielded last nor the value it was sent: the original may have forgotten both."""
    host.watch("streams.forgetful", "streams.async_forgetful")
    module = host.load(
        "streams",
        "def forgetful(make):\n"
        "    while True:\n"
        "        yield make()\n"
        "async def async_forgetful(make):\n"
        "    while True:\n"
        "        yield make()\n",
    )

    class Item: ...

    gc.disable()
    try:
        generator = module.forgetful(Item)
        seen = [weakref.ref(next(generator)), weakref.ref(generator.send(Item()))]
        assert [item() for item in seen] == [None, None]
        sent = Item()
        seen = [weakref.ref(sent), weakref.ref(generator.send(sent))]
        del sent
        assert [item() for item in seen] == [None, None]

        async def take() -> None:
            stream = module.async_forgetful(Item)
            seen = [weakref.ref(await stream.__anext__()), weakref.ref(await stream.asend(Item()))]
            assert [item() for item in seen] == [None, None]
            await stream.aclose()

        asyncio.run(take())
    finally:
        gc.enable()


def test_a_generator_that_others_hold_is_left_to_them(host: Host) -> None:
    """``def current(self): return self._stream`` makes nothing: a driver that is dropped would close it for all."""
    host.watch("streams.Holder.current")
    module = host.load(
        "streams",
        "class Holder:\n"
        "    def __init__(self):\n"
        "        self.stream = (number for number in range(9))\n"
        "    def current(self):\n"
        "        return self.stream\n",
    )
    holder = module.Holder()
    assert holder.current() is holder.stream
    assert next(holder.current()) == 0
    gc.collect()
    assert next(holder.current()) == 1
    assert host.statuses() == ["OK"] * 3


def test_an_awaitable_generator_stays_awaitable(host: Host) -> None:
    host.watch("old.wait", "old.returns")
    module = host.load(
        "old",
        "import types\n@types.coroutine\ndef wait(x):\n    yield\n    return x\ndef returns(x):\n    return wait(x)\n",
    )

    async def both() -> Any:
        return await module.wait(1), await module.returns(2)

    assert inspect.isawaitable(module.wait(1)) and asyncio.run(both()) == (1, 2)


def test_the_span_is_current_inside_and_never_across_a_yield(host: Host) -> None:
    host.watch("streams.outer", "streams.inner")
    module = host.load(
        "streams",
        "def inner(x):\n    return x\ndef outer():\n    for number in range(3):\n        yield inner(number)\n",
    )
    for _ in module.outer():
        assert context.current.get() is None
        module.inner("between")
    opens = [record.parent for record in host.records() if type(record).__name__ == "Open"]
    root = opens[0]
    assert root == 0 and [parent != 0 for parent in opens[1:]] == [True, False] * 3


def test_a_generator_resumed_in_other_contexts_leaves_them_as_they_were(host: Host) -> None:
    host.watch("streams.count")
    module = host.load("streams", "def count():\n    yield 1\n    yield 2\n    yield 3\n")
    generator = module.count()
    contexts = [contextvars.copy_context() for _ in range(3)]
    assert [where.run(next, generator) for where in contexts] == [1, 2, 3]
    assert all(where.run(context.current.get) is None for where in contexts)


@pytest.mark.parametrize("drop", [lambda it: it.close(), lambda it: None], ids=["closed", "dropped"])
def test_a_coroutine_never_awaited_warns_as_it_did(host: Host, drop: Callable[[Any], None]) -> None:
    pair = Pair(host, *(kind for kind in _coroutines()))

    def observe(module: ModuleType) -> Any:
        import warnings

        seen = []
        for kind in _coroutines():
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                drop(kind.start(module, 1))
                gc.collect()
            seen.append([str(warning.message) for warning in warned])
        return seen

    pair.same(observe)


def _coroutines() -> tuple[Kind, ...]:
    from .kinds import ASYNC

    return ASYNC
