"""Of a decorated function the outermost one is recorded, or the one that the spec names by ``__wrapped__``."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from .conftest import Host
from .processes import run

SOURCE = """
import contextlib, functools
calls = []
def retried(times):
    def decorator(function):
        @functools.wraps(function)
        def call(*args):
            for attempt in range(times):
                result = function(*args)
            return result
        return call
    return decorator
def bare(function):
    return lambda *args: function(*args)
@retried(2)
def search(x): return [x]
@retried(2)
@retried(3)
def twice(x): return [x]
@functools.lru_cache
@retried(2)
def cached(x): return (x,)
@retried(2)
@functools.lru_cache
def cache_below(x): return (x,)
@contextlib.contextmanager
def manager(x): yield [x]
class Tool:
    @retried(2)
    def run(self, x): return [x]
    @staticmethod
    @retried(3)
    def static(x): return [x]
    @classmethod
    @retried(3)
    def on_class(cls, x): return [x]
    @property
    @retried(2)
    def state(self): return [1]
class Below(Tool): pass
@bare
def hidden(x): return [x]
def plain(x): return [x]
"""
NAMED = {
    "search": ("search(1)", 1),
    "search.__wrapped__": ("search(1)", 2),
    "twice": ("twice(1)", 1),
    "twice.__wrapped__": ("twice(1)", 2),
    "twice.__wrapped__.__wrapped__": ("twice(1)", 6),
    "cached": ("[cached(1), cached(1)]", 1),
    "cached.__wrapped__": ("[cached(1), cached(1)]", 1),
    "cached.__wrapped__.__wrapped__": ("[cached(1), cached(1)]", 2),
    "cache_below": ("cache_below(1)", 1),
    "cache_below.__wrapped__": ("cache_below(1)", 1),
    "manager.__wrapped__": ("manager(1).__enter__()", 1),
    "Tool.run": ("Tool().run(1)", 1),
    "Tool.run.__wrapped__": ("Tool().run(1)", 2),
    "Tool.static.__wrapped__": ("Tool.static(1)", 3),
    "Tool.on_class.__wrapped__": ("Tool.on_class(1)", 3),
    "Tool.state.__wrapped__": ("Tool().state", 2),
}


@pytest.mark.parametrize("separator", [".", ":"])
@pytest.mark.parametrize("name", NAMED)
def test_the_list_says_which(host: Host, name: str, separator: str) -> None:
    call, times = NAMED[name]
    host.watch(f"layers{separator}{name}")
    module = host.load("layers", SOURCE)
    bare = host.load("layers_bare", SOURCE)
    assert repr(eval(call, vars(module))).replace("layers", "") == repr(eval(call, vars(bare))).replace(
        "layers_bare", ""
    )
    assert len(host.opened()) == times
    assert host.reports()[f"layers:{name}"][0] == "bound"
    assert (", below " in host.reports()[f"layers:{name}"][1]) == ("__wrapped__" in name or name == "cached")


def test_above_and_below_are_two_targets(host: Host) -> None:
    host.watch("layers.search", "layers.search.__wrapped__")
    module = host.load("layers", SOURCE)
    assert module.search(1) == [1] and len(host.opened()) == 3
    host.stop()
    assert module.search(1) == [1] and len(host.opened()) == 3


@pytest.mark.parametrize("name", ["plain.__wrapped__", "hidden.__wrapped__", "search.__wrapped__.__wrapped__"])
def test_where_nothing_is_below(host: Host, name: str) -> None:
    host.watch(f"layers.{name}")
    host.load("layers", SOURCE)
    state, reason = host.reports()[f"layers:{name}"]
    assert state == "refused" and "has no `__wrapped__`" in reason


def test_of_an_inherited_method(host: Host) -> None:
    host.watch("layers.Below.run.__wrapped__")
    module = host.load("layers", SOURCE)
    state, reason = host.reports()["layers:Below.run.__wrapped__"]
    assert state == "refused" and "name it on the class that has it" in reason
    assert module.Below().run(1) == [1] and not host.opened()


AWAITED = """
import asyncio, concurrent.futures, functools, inspect
def auto_await(function):
    @functools.wraps(function)
    def wrapper(*args):
        coroutine = function(*args)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        caller = inspect.currentframe().f_back
        if caller.f_code.co_flags & inspect.CO_COROUTINE:
            return coroutine
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()
    return wrapper
class Manager:
    @auto_await
    async def generate(self, x): return [x]
def from_a_function(x): return Manager().generate(x)
async def awaited(x): return await Manager().generate(x)
async def waits(x): return from_a_function(x)
@auto_await
async def at_once(x): return [x]
def loud(function):
    import sys
    @functools.wraps(function)
    def wrapper(*args):
        return sys._getframe(1).f_code.co_name, function(*args)
    return wrapper
@loud
@loud
def who(x): return [x]
def asks(x): return who(x)
@loud
def looks_too(x):
    import sys
    return sys._getframe(1).f_code.co_name
"""


def test_below_a_decorator_that_looks_at_its_caller(host: Host) -> None:
    host.watch("awaited.Manager.generate", "awaited.who", "awaited.looks_too", "awaited.at_once")
    module = host.load("awaited", AWAITED)
    bare = host.load("awaited_bare", AWAITED)
    assert module.from_a_function(1) == [1]
    assert asyncio.run(module.awaited(2)) == [2] and asyncio.run(module.waits(3)) == [3]
    assert module.at_once(4) == [4] and inspect.isfunction(module.at_once)
    assert host.opened() == ["Manager.generate"] * 3 + ["at_once"]
    assert module.asks(1) == bare.asks(1) == ("asks", ("wrapper", [1])) and host.opened()[-1] == "who"
    assert module.looks_too(1)[1] == bare.looks_too(1)[1] == "wrapper"
    reports = host.reports()
    assert reports["awaited:Manager.generate"] == (
        "bound",
        "in place, below a decorator that looks at its caller's frame",
    )
    assert reports["awaited:looks_too"][0] == "refused" and "its caller's frame" in reports["awaited:looks_too"][1]


def test_in_the_program_itself(tmp_path: Path) -> None:
    text = f"{SOURCE}\nif __name__ == '__main__':\n    print(search(1), Tool().run(1))\n"
    (tmp_path / "layered.py").write_text(text)
    calls = {}
    for below in ("", ".__wrapped__"):
        names = f"- layered.search{below}\n- layered.Tool.run{below}\n"
        ran = run(tmp_path, names, str(tmp_path / "layered.py"))
        assert ran.stdout == "[1] [1]\n"
        calls[below] = sorted(name for _, name in ran.calls())
    assert calls == {"": ["Tool.run", "search"], ".__wrapped__": ["Tool.run"] * 2 + ["search"] * 2}
