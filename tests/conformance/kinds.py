"""The rows of the matrix: each kind of target, how it is named, found and run."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Kind:
    name: str
    target: str
    """Below the module."""
    found: Callable[[ModuleType], Any]
    """The callable as the host gets it."""
    takes_argument: bool = True
    """False: the subject is made with its arguments (properties)."""
    subclasses: bool = False
    function: bool = True
    """Whether what the host gets is a function or a bound method."""

    def owner(self, module: ModuleType) -> Any:
        """The class of the target."""
        return getattr(module, self.target.split(".")[0])

    def start(self, module: ModuleType, x: int, fail: bool = False) -> Any:
        """Call it; what comes back may still have to be run."""
        if self.takes_argument:
            return self.found(module)(x, fail=fail)
        return self.found(module)(self.owner(module)(x, fail))

    def run(self, module: ModuleType, x: int, fail: bool = False) -> Any:
        """Call it and run what comes back to its end."""
        return finished(self.start(module, x, fail))


def stepped(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, without an event loop (whose tasks refer to their errors in a circle)."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def finished(result: Any, run: Callable[..., Any] = asyncio.run) -> Any:
    """Run what a call returned to its end; ``run`` runs coroutines."""
    if inspect.iscoroutine(result):
        return run(result)
    if inspect.isgenerator(result):
        items = []
        while True:
            try:
                items.append(next(result))
            except StopIteration as stop:
                return items, stop.value
    if isinstance(result, contextlib.AbstractContextManager):
        with result as value:
            return value
    if isinstance(result, contextlib.AbstractAsyncContextManager):

        async def use() -> Any:
            async with result as value:
                return value

        return run(use())
    if inspect.isasyncgen(result):

        async def collect() -> list[Any]:
            return [item async for item in result]

        return run(collect())
    return result


KINDS = (
    Kind("function", "function", lambda m: m.function),
    Kind("async", "coroutine", lambda m: m.coroutine),
    Kind("generator", "generator", lambda m: m.generator),
    Kind("async generator", "async_generator", lambda m: m.async_generator),
    Kind("returns a coroutine", "returns_coroutine", lambda m: m.returns_coroutine),
    Kind("returns a generator", "returns_generator", lambda m: m.returns_generator),
    Kind("returns an async generator", "returns_async_generator", lambda m: m.returns_async_generator),
    Kind("context manager", "manager", lambda m: m.manager),
    Kind("async context manager", "async_manager", lambda m: m.async_manager),
    Kind("returns a context manager", "returns_manager", lambda m: m.returns_manager),
    Kind("returns an async context manager", "returns_async_manager", lambda m: m.returns_async_manager),
    Kind("method", "Thing.method", lambda m: m.Thing().method),
    Kind("async method", "Thing.async_method", lambda m: m.Thing().async_method),
    Kind("generator method", "Thing.generator_method", lambda m: m.Thing().generator_method),
    Kind("static method", "Thing.static", lambda m: m.Thing.static),
    Kind("class method", "Thing.class_method", lambda m: m.Thing.class_method),
    Kind("class method, on a subclass", "Thing.class_method", lambda m: m.Later.class_method),
    Kind("inherited", "Thing.inherited", lambda m: m.Thing().inherited),
    Kind("overridden", "Base.overridden", lambda m: m.Later().overridden, subclasses=True),
    Kind("nested class", "Thing.Inner.method", lambda m: m.Thing.Inner().method),
    Kind("property", "Thing.getter", lambda m: lambda thing: thing.getter, takes_argument=False, function=False),
    Kind(
        "cached property", "Cached.cached", lambda m: lambda thing: thing.cached, takes_argument=False, function=False
    ),
    Kind("partial", "partial", lambda m: m.partial, function=False),
    Kind("partial method", "Thing.with_default", lambda m: m.Thing().with_default, function=False),
    Kind("callable instance", "instance", lambda m: m.instance, function=False),
)

FUNCTIONS = tuple(kind for kind in KINDS if kind.function)
ASYNC = tuple(kind for kind in KINDS if kind.name in ("async", "async method", "returns a coroutine"))
GENERATORS = tuple(kind for kind in KINDS if "generator" in kind.name and "async" not in kind.name)
ASYNC_GENERATORS = tuple(kind for kind in KINDS if "async generator" in kind.name)
