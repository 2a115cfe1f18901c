"""Functions that well-known frameworks hold are recorded when the framework calls them, and stay what they were."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
from types import ModuleType
from typing import Any

import pytest

from .conftest import Host

PLUGGY = """
import pluggy
spec, impl = pluggy.HookspecMarker("tried"), pluggy.HookimplMarker("tried")
class Specs:
    @spec
    def finished(self, x): pass
class Plugin:
    @impl
    def finished(self, x): return [x]
@impl(tryfirst=True)
def finished(x): return [x, x]
@impl(wrapper=True)
def around(x):
    result = yield
    return [*result, "around"]
class Around:
    finished = staticmethod(around)
def go(x):
    import sys
    manager = pluggy.PluginManager("tried")
    manager.add_hookspecs(Specs)
    for plugin in (Plugin(), sys.modules[__name__], Around()):
        manager.register(plugin)
    return manager.hook.finished(x=x)
"""
HUEY = """
import huey
queue = huey.MemoryHuey(immediate=True)
@queue.task(retries=2)
def add(a, b): return a + b
@queue.periodic_task(huey.crontab(minute="0"))
def every(): return 7
def go(x):
    return add(x, 1)(), add.call_local(x, 2), every.call_local(), queue.enqueue(add.s(x, 5))()
"""
TYPER = """
import typer, typer.testing
app = typer.Typer()
@app.command()
def hello(name: str, times: int = 1):
    typer.echo(f"hello {name} " * times)
@app.command()
def bye(): typer.echo("bye")
@app.callback()
def first(loud: bool = False): typer.echo(f"first {loud}")
def go(x):
    run = typer.testing.CliRunner().invoke
    return [run(app, words).output for words in (["hello", "you", "--times", "2"], ["--loud", "bye"], ["--help"])]
"""
CLICK = """
import click, click.testing
@click.group()
@click.pass_context
def group(context): context.obj = 5
@group.command()
@click.option("--n", type=int, default=2)
@click.pass_obj
def sub(obj, n): click.echo(str(obj * n))
def go(x): return click.testing.CliRunner().invoke(group, ["sub", "--n", str(x)]).output
"""
FASTAPI = """
import typing
import fastapi, fastapi.testclient, pydantic
from contextlib import asynccontextmanager
started = []
@asynccontextmanager
async def lifespan(app):
    started.append(1)
    yield
    started.append(2)
app = fastapi.FastAPI(lifespan=lifespan)
def token(q: str = "none"): return q
async def session():
    yield "session"
class Body(pydantic.BaseModel):
    n: int
    @pydantic.field_validator("n")
    @classmethod
    def doubled(cls, value): return value * 2
    @pydantic.computed_field
    @property
    def more(self) -> int: return self.n + 1
@app.middleware("http")
async def counted(request, call_next):
    response = await call_next(request)
    response.headers["x-counted"] = "1"
    return response
@app.post("/{name}", response_model=Body)
async def post(name: str, body: Body, q: typing.Annotated[str, fastapi.Depends(token)], s=fastapi.Depends(session)):
    if q == "bad":
        raise KeyError(q)
    return {"n": body.n + len(name)}
@app.exception_handler(KeyError)
async def handled(request, error): return fastapi.responses.JSONResponse({"error": str(error)}, 418)
@app.websocket("/ws")
async def socket(ws: fastapi.WebSocket):
    await ws.accept()
    await ws.send_json({"got": await ws.receive_text()})
def go(x):
    with fastapi.testclient.TestClient(app) as client:
        first = client.post("/abc?q=good", json={"n": x})
        bad = client.post("/abc?q=bad", json={"n": x})
        with client.websocket_connect("/ws") as ws:
            ws.send_text("hello")
            told = ws.receive_json()
        answers = first.json(), first.headers["x-counted"], bad.status_code, bad.json(), told
        return answers, app.openapi()["paths"], started
"""
DATACLASS = """
import dataclasses
from typing import Callable
def score(x): return float(x)
def made(): return [1]
@dataclasses.dataclass
class Config:
    reward: Callable = score
    rewards: list = dataclasses.field(default_factory=lambda: [score])
    items: list = dataclasses.field(default_factory=made)
    def __post_init__(self): self.seen = self.reward(1)
@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: int
    def twice(self): return self.x * 2
def go(x):
    config = Config()
    return config.reward(x), [one(x) for one in config.rewards], config.items, config.seen, Slotted(x).twice(), \\
        dataclasses.replace(config, reward=score).reward(x), dataclasses.fields(Config)[0].default is score
"""
PYDANTIC = """
from typing import Annotated, Any, Callable
import pydantic
def cleaned(value: Any) -> Any: return str(value).strip()
def scored(x: float) -> float: return x * 2
class Config(pydantic.BaseModel):
    name: Annotated[str, pydantic.BeforeValidator(cleaned)]
    reward: Callable[[float], float] = scored
    @pydantic.model_validator(mode="after")
    def checked(self): return self
@pydantic.validate_call
def called(x: int) -> int: return x + 1
def go(x):
    config = Config(name="  a ")
    return config.name, config.reward(x), called(str(x)), config.model_copy(deep=True).reward is scored
"""
ATTRS = """
import attrs
def positive(instance, attribute, value):
    if value < 0: raise ValueError(value)
def converted(value): return int(value)
@attrs.define
class Step:
    n: int = attrs.field(validator=positive, converter=converted)
    m: list = attrs.field()
    @m.default
    def some(self): return [self.n]
def go(x): return Step(str(x))
"""
FIXTURES = """
import atexit, concurrent.futures, contextlib, functools, heapq, operator, signal, threading, weakref
from unittest import mock
def key(x): return -x
def work(x): return x + 1
def done(future): seen.append(future.result())
def final(): seen.append("final")
seen = []
class Thing: pass
def dispatched(x): return "int"
@functools.singledispatch
def dispatch(x): return "any"
dispatch.register(int, dispatched)
class Desc:
    def method(self, x): return x
    also = method
    partial = functools.partialmethod(method, 4)
def patched(x): return x
def go(x):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, x)
        future.add_done_callback(done)
        results = list(pool.map(work, [1, 2]))
    thing = Thing()
    finalizer = weakref.finalize(thing, final)
    del thing
    timer = threading.Timer(0, done, [future]); timer.start(); timer.join()
    with mock.patch(f"{__name__}.patched", wraps=patched) as double:
        double(1)
        assert double.call_count == 1
    with contextlib.ExitStack() as stack:
        stack.callback(final)
    return (sorted([1, 3, 2], key=key), max([1, 2], key=key), results, dispatch(x), dispatch("a"), seen,
            Desc().also(1), Desc().partial(), functools.reduce(operator.add, map(work, [1, 2])),
            heapq.nsmallest(1, [1, 2], key=key), finalizer.alive)
"""

FRAMEWORKS: dict[str, tuple[str, dict[str, int]]] = {
    "pluggy": (PLUGGY, {"finished": 1, "Plugin.finished": 1, "around": 1}),
    "huey": (HUEY, {"add": 3, "every": 1}),
    "typer": (TYPER, {"hello": 1, "bye": 1, "first": 2}),
    "click": (CLICK, {"group": 1, "sub": 1}),
    "fastapi": (
        FASTAPI,
        {
            "lifespan": 1,
            "token": 2,
            "session": 2,
            "Body.doubled": 3,
            "counted": 2,
            "post": 2,
            "handled": 1,
            "socket": 1,
        },
    ),
    "dataclass": (DATACLASS, {"score": 5, "made": 1, "Slotted.twice": 1}),
    "pydantic": (PYDANTIC, {"cleaned": 1, "scored": 1, "called": 1, "Config.checked": 1}),
    "attrs": (ATTRS, {"positive": 1, "converted": 1, "Step.some": 1}),
    "standard library": (
        FIXTURES,
        {"key": 7, "work": 5, "done": 2, "final": 2, "dispatched": 1, "patched": 1, "Desc.method": 2},
    ),
}


@pytest.mark.parametrize("early", [True, False], ids=["imported before", "imported after"])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_framework_holds_is_recorded(host: Host, name: str, early: bool) -> None:
    source, expected = FRAMEWORKS[name]
    bare = host.load("held_bare", source).go(3)
    if early:
        module = host.load("held_same", source)
        before = {target: _looked_at(module, target) for target in expected}
    host.watch(*(f"held_same.{target}" for target in expected))
    module = importlib.import_module("held_same") if early else host.load("held_same", source)
    if early:
        assert {target: _looked_at(module, target) for target in expected} == before
    assert repr(module.go(3)).replace("held_same", "held_bare") == repr(bare)
    names = host.opened()
    assert {target: names.count(target) for target in expected} == expected, host.reports()


def _looked_at(module: ModuleType, target: str) -> list[Any]:
    held: Any = module
    for word in target.split("."):
        held = inspect.getattr_static(held, word)
    try:
        pickled: Any = pickle.dumps(held)
    except Exception as error:
        pickled = type(error).__name__
    attributes = sorted(vars(held)) if hasattr(held, "__dict__") else []
    return [id(held), type(held).__name__, pickled, json.dumps(attributes)]
