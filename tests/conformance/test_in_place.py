"""A function is recorded whoever calls it, by whatever it is held, and it stays the object that it was."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import inspect
import multiprocessing
import pickle
import re
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from autotrace.config.plan import Target
from tests.waiting import DEADLINE

from .conftest import Host


def held(host: Host, name: str, source: str, call: str, x: int = 3) -> ModuleType:
    """The module ``source``, of which ``name`` is recorded; ``call`` of it is, and gives what it gave."""
    bare = host.load("bare_tools", source)
    host.watch(f"same_tools.{name}")
    module = host.load("same_tools", source)
    assert eval(call, vars(module), {"x": x}) == eval(call, vars(bare), {"x": x})
    assert len(host.opened()) == 1, host.reports()
    return module


WAYS = {
    "registry": ("f", "R = {}\ndef add(f):\n R['f'] = f\n return f\n@add\ndef f(x): return [x]", "R['f'](x)"),
    "dict": ("f", "def f(x): return [x]\nD = {'f': f}", "D['f'](x)"),
    "list": ("f", "def f(x): return [x]\nL = [f]", "L[0](x)"),
    "tuple": ("f", "def f(x): return [x]\nT = (f,)", "T[0](x)"),
    "default argument": ("f", "def f(x): return [x]\ndef g(x, f=f): return f(x)", "g(x)"),
    "partial": ("f", "import functools\ndef f(y, x): return [y, x]\nP = functools.partial(f, 2)", "P(x)"),
    "partial by name": ("f", "import functools\ndef g(y, x): return [y, x]\nf = functools.partial(g, 2)", "f(x)"),
    "singledispatch": (
        "f",
        "import functools\n@functools.singledispatch\ndef f(x): return 'any'\n@f.register\ndef _(x: str): return x",
        "f(x)",
    ),
    "registered implementation": (
        "f",
        "import functools\n@functools.singledispatch\ndef g(x): return 0\n@g.register\ndef f(x: int): return [x]",
        "g(x)",
    ),
    "closures in a list": (
        "f",
        "def make(n):\n def f(x): return [n, x]\n return f\nL = [make(n) for n in range(3)]\nf = L[1]",
        "L[1](x)",
    ),
    "lru_cache": ("f", "import functools\n@functools.lru_cache\ndef f(x): return (x,)", "f(x) is f(x) and f(x)"),
    "route": (
        "f",
        "import fastapi, fastapi.testclient\napp = fastapi.FastAPI()\n@app.get('/')\ndef f(x: int): return [x]",
        "fastapi.testclient.TestClient(app).get('/', params={'x': x}).json()",
    ),
    "asynchronous route": (
        "f",
        "import fastapi, fastapi.testclient\napp = fastapi.FastAPI()\n@app.get('/')\nasync def f(x: int): return [x]",
        "fastapi.testclient.TestClient(app).get('/', params={'x': x}).json()",
    ),
    "click command": (
        "f",
        "import click\n@click.command()\n@click.argument('x', type=int)\ndef f(x): return [x]",
        "f.main([str(x)], standalone_mode=False)",
    ),
    "dict of a class": ("f", "def f(x): return [x]\nclass A:\n tools = {'f': f}", "A().tools['f'](x)"),
    "alias": ("f", "def f(x): return [x]\ng = f", "g(x)"),
    "staticmethod": ("A.f", "class A:\n @staticmethod\n def f(x): return [x]\ng = A.f", "g(x)"),
    "classmethod": ("A.f", "class A:\n @classmethod\n def f(cls, x): return [x]\ng = A.f", "g(x)"),
    "bound method made at import": ("A.f", "class A:\n def f(self, x): return [x]\ng = A().f", "g(x)"),
    "function of a class": ("A.f", "class A:\n def f(self, x): return [x]\ng = A.__dict__['f']", "g(A(), x)"),
    "below a decorator": (
        "f",
        "import functools\ndef deco(f):\n @functools.wraps(f)\n def g(*a): return f(*a)\n"
        " return g\n@deco\ndef f(x): return [x]",
        "f(x)",
    ),
    "thread's target": (
        "f",
        "import threading\ndef f(x, out): out.append(x)\ndef go(x):\n out = []\n"
        " t = threading.Thread(target=f, args=(x, out))\n"
        " t.start(); t.join()\n return out",
        "go(x)",
    ),
    "context manager": (
        "f",
        "import contextlib\n@contextlib.contextmanager\ndef f(x): yield [x]\nL = [f]\ndef go(x):\n"
        " with L[0](x) as y: return y",
        "go(x)",
    ),
    "property": ("A.f", "class A:\n @property\n def f(self): return 1\nget = A.f.fget", "get(A())"),
    "cached property": (
        "A.f",
        "import functools\nclass A:\n @functools.cached_property\n def f(self): return 1\nget = A.__dict__['f'].func",
        "get(A())",
    ),
    "dataclass field": (
        "f",
        "import dataclasses\ndef f(x): return [x]\n@dataclasses.dataclass\nclass Tool:\n run: object = f\nt = Tool()",
        "t.run(x)",
    ),
    "default factory": (
        "f",
        "import dataclasses\ndef f(): return [1]\n@dataclasses.dataclass\nclass A:\n"
        " x: list = dataclasses.field(default_factory=f)",
        "A().x",
    ),
    "pydantic validator": (
        "f",
        "import pydantic, typing\ndef f(x): return [x]\nclass M(pydantic.BaseModel):\n"
        " x: typing.Annotated[list, pydantic.BeforeValidator(f)]",
        "M(x=x).x",
    ),
    "task decorator": (
        "f",
        "class Task:\n def __init__(self, run): self.run = run\n def __call__(self, *a): return self.run(*a)\n"
        " def delay(self, *a): return self.run(*a)\ndef task(f): return Task(f)\n@task\ndef f(x): return [x]",
        "f.delay(x)",
    ),
    "tool object with a closure": (
        "f",
        "def tool(f):\n async def invoke(x): return f(x)\n return type('Tool', (), {})(), invoke\n"
        "class Tool:\n pass\ndef as_tool(f):\n t = Tool()\n t.invoke = lambda x: f(x)\n return t\n"
        "@as_tool\ndef f(x): return [x]",
        "f.invoke(x)",
    ),
    "event hooks": (
        "f",
        "HOOKS = {'end': []}\ndef on(name):\n return lambda f: HOOKS[name].append(f) or f\n"
        "@on('end')\ndef f(x): return [x]",
        "HOOKS['end'][0](x)",
    ),
    "dispatch by an enumeration": (
        "f",
        "import enum, functools\ndef f(x): return [x]\nclass E(enum.Enum):\n F = functools.partial(f)\n"
        "TABLE = {'F': functools.partial(f)}",
        "TABLE['F'](x)",
    ),
    "weak reference": ("f", "import weakref\ndef f(x): return [x]\nW = weakref.ref(f)", "W()(x)"),
    "super": (
        "B.f",
        "class A:\n def f(self, x): return [x]\nclass B(A):\n def f(self, x): return super().f(x) + [0]\ng = B().f",
        "g(x)",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_recorded_by_whatever_it_is_held(host: Host, way: str) -> None:
    held(host, *WAYS[way])


def _pickled(value: Any) -> Any:
    try:
        return pickle.dumps(value)
    except Exception as error:  # what cannot be pickled cannot be afterwards, for the same reason
        return re.sub("0x[0-9a-f]+", "", f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("way", WAYS)
def test_whatever_holds_it_is_what_it_was(host: Host, way: str) -> None:
    name, source, call = WAYS[way]
    (host.code / "whole.py").write_text(source)
    host.modules.add("whole")
    module = importlib.import_module("whole")
    owner: Any = getattr(module, name.partition(".")[0]) if "." in name else module
    before = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    stands = vars(owner)[name.rpartition(".")[2]]
    pickled = {key: _pickled(value) for key, value in before.items()}
    host.watch(f"whole.{name}")  # imported already
    assert vars(owner)[name.rpartition(".")[2]] is stands
    assert all(vars(module)[key] is value for key, value in before.items())
    assert pickled == {key: _pickled(value) for key, value in before.items()}
    eval(call, vars(module), {"x": 3})
    assert len(host.opened()) == 1


PICKLED = ("registry", "dict", "list", "tuple", "default argument", "partial", "alias", "route")


@pytest.mark.parametrize("way", PICKLED)
def test_it_stays_the_object_that_it_was(host: Host, way: str) -> None:
    name, source, call = WAYS[way]
    (host.code / "whole.py").write_text(source)
    host.modules.add("whole")
    module = importlib.import_module("whole")
    before = getattr(module, name)
    state = hash(before), dict(vars(before)), str(inspect.signature(before)), pickle.dumps(before)
    reference = weakref.ref(before)
    host.watch(f"whole.{name}")  # imported already
    assert getattr(module, name) is before is reference() is copy.deepcopy(before)
    assert state == (hash(before), dict(vars(before)), str(inspect.signature(before)), pickle.dumps(before))
    assert pickle.loads(state[-1]) is before is inspect.unwrap(before)
    eval(call, vars(module), {"x": 3})
    assert host.opened() == [name]
    code = before.__code__
    host.stop()
    assert before.__code__ is not code and before.__code__.co_filename == module.__file__
    calls = len(host.opened())
    eval(call, vars(module), {"x": 3})
    assert len(host.opened()) == calls


def test_a_pool_takes_a_function_of_a_table(host: Host) -> None:
    module = held(host, "f", "def f(x): return [x]\nD = {'f': f}", "D['f'](x)")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(module.D["f"], [1, 2]) == [[1], [2]]


def test_by_value_into_a_process_without_autotrace(host: Host) -> None:
    source = "def make(n):\n def f(x, *, y=1): return [n, x, y]\n return f\nf = make(7)\ndef g(x): return f(x)\n"
    host.watch("values.f", "values.g")
    module = host.load("values", source)
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps([module.f, module.g])
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    program = (
        "import sys, pickle\n"
        "sys.meta_path.insert(0, type('No', (), {'find_spec': staticmethod(lambda n, *a: (_ for _ in ()).throw("
        "ImportError(n)) if n.startswith('autotrace') else None)}))\n"
        "f, g = pickle.load(sys.stdin.buffer)\nprint(f(1), g(2), 'autotrace.record.calls' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert ran.stdout.decode().split("\n")[0] == "[7, 1, 1] [7, 2, 1] False", ran.stderr


def test_the_traceback_is_the_programs_own(host: Host) -> None:
    source = """
import asyncio, contextlib
def inner(x): raise ValueError(x)
def plain(x): return inner(x)
async def coroutine(x): return inner(x)
def generator(x):
    yield inner(x)
async def async_generator(x):
    yield inner(x)
@contextlib.contextmanager
def manager(x):
    yield x
class Thing:
    def method(self, x):
        try:
            inner(x)
        except ValueError as error:
            raise KeyError(x) from error
def with_manager(x):
    with manager(x):
        inner(x)
async def collect(x): return [item async for item in async_generator(x)]
ALL = [plain, lambda x: asyncio.run(coroutine(x)), lambda x: list(generator(x)), lambda x: asyncio.run(collect(x)),
       with_manager, lambda x: Thing().method(x)]
def grouped(x):
    errors = []
    for one in ALL:
        try:
            one(x)
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("all", errors)
"""

    def printed(module: ModuleType) -> list[str]:
        texts = []
        for one in [*module.ALL, *([module.grouped] if sys.version_info >= (3, 11) else [])]:
            try:
                one(1)
            except Exception as error:
                whole = traceback.TracebackException.from_exception(error)
                texts.append("".join(whole.format()).replace("same_tools", "bare_tools"))
        return texts

    bare = host.load("bare_tools", source)
    host.watch("same_tools.**")
    traced = host.load("same_tools", source)
    assert printed(traced) == printed(bare)
    assert {"plain", "coroutine", "generator", "async_generator", "manager", "Thing.method"} <= set(host.opened())


def test_the_code_is_exchanged_while_others_are_inside(host: Host) -> None:
    """Suspended generators, waiting coroutines and other threads go on in the code that they began."""
    module = host.load(
        "busy",
        """
import asyncio, threading
go, inside = threading.Event(), threading.Event()
def threaded(x):
    inside.set()
    go.wait(240)
    return [x]
def generator(x):
    yield x
    yield x + 1
async def coroutine(x, event):
    await event.wait()
    return x
""",
    )
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(module.threaded(1)))
    thread.start()
    assert module.inside.wait(DEADLINE)
    started = module.generator(1)
    assert next(started) == 1
    host.watch("busy.**")
    module.go.set()
    thread.join()
    assert out == [[1]] and list(started) == [2] and not host.opened()
    halfway = module.generator(5)
    assert next(halfway) == 5
    host.stop()
    assert next(halfway) == 6 and module.threaded(2) == [2]


def test_two_targets_for_one_function(host: Host) -> None:
    host.write("origin", "def f(x): return [x]\n")
    host.watch("origin.f", "borrower.f")
    module = host.load("borrower", "from origin import f\n")
    assert module.f(1) == [1] and host.opened() == ["f"]
    assert "recorded for the target `origin.f` already" in host.reports()["borrower:f"][1]


def test_somebody_else_exchanges_the_code_too(host: Host) -> None:
    """A debugger's or another tracer's code stays, and what it calls is recorded until we stop."""
    module = host.load("other", "def f(x): return [x]\n")
    host.watch("other.f")
    ours = module.f.__code__
    kept = type(module.f)(ours, vars(module), "f")
    vars(module)["kept"] = kept
    module.f.__code__ = _calls_kept.__code__
    assert module.f(1) == [1, "theirs"] and host.opened() == ["f"]
    theirs = module.f.__code__
    host.stop()
    assert module.f.__code__ is theirs and module.f(1) == [1, "theirs"]


def _calls_kept(x: Any) -> Any:
    return [*kept(x), "theirs"]  # type: ignore[name-defined]  # noqa: F821 - of the module that gets this code


def test_garbage_stays_garbage(host: Host) -> None:
    """Functions and classes made in functions are collected with what their closures hold."""
    host.watch(Target("run", ("base.Base.run",), subclasses=True))
    module = host.load(
        "base",
        """
class Base:
    def run(self, x): return [x]
def make():
    held = Base()
    class Mine(Base):
        def run(self, x):
            return super().run(x) + [type(held).__name__, Mine.__name__]
    return Mine
""",
    )
    made = module.make()
    assert made().run(1) == [1, "Base", "Mine"] and host.opened() == ["make.<locals>.Mine.run"]
    reference = weakref.ref(made)
    del made
    gc.collect()
    assert reference() is None


def test_defaults_changed_while_it_runs(host: Host) -> None:
    module = host.load("defaults", "def f(x, y=1, *, z=2): return [x, y, z]\n")
    host.watch("defaults.f")
    module.f.__defaults__, module.f.__kwdefaults__ = (5,), {"z": 6}
    assert module.f(1) == [1, 5, 6]
    host.stop()
    assert module.f(1) == [1, 5, 6]


@pytest.mark.parametrize("names", ["call", "function, key", "calls, error", "BaseException", "self, _autotrace_p0"])
def test_names_that_collide(host: Host, names: str) -> None:
    module = host.load("names", f"def f({names}): return [{names}]\ndef g(*, {names}): return [{names}]\n")
    host.watch("names.f", "names.g")
    values: list[Any] = [*range(names.count(",") + 1)]
    assert module.f(*values) == values
    assert module.g(**dict(zip(names.split(", "), values, strict=True))) == values
    assert host.opened() == ["f", "g"]


def test_positional_only_and_variable(host: Host) -> None:
    source = "def f(a, /, b, *c, d, **e): return [a, b, c, d, e]\n"
    held(host, "f", source, "f(x, 2, 3, d=4, a=5)")


SEEN = """
import sys
lines = []
def f(x):
    y = x
    return [y]
def traced():
    def watch(frame, event, argument):
        if frame.f_code.co_filename == __file__:
            lines.append((event, frame.f_lineno, frame.f_code.co_name))
        return watch
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        f(1)
    finally:
        sys.settrace(before)
    return lines
"""


def test_the_same_lines_are_counted(host: Host) -> None:
    held(host, "f", SEEN, "traced()")


def test_a_breakpoint_by_line_and_by_function(host: Host, tmp_path: Path) -> None:
    import io
    import pdb

    module = held(host, "f", "def f(x):\n    y = x\n    return [y]\n", "f(x)")
    for place in (f"{module.__file__}:2", "f"):
        out = io.StringIO()
        debugger = pdb.Pdb(stdin=io.StringIO(f"break {place}\ncontinue\nargs\nquit\n"), stdout=out, nosigint=True)
        with contextlib.suppress(Exception):
            debugger.runeval("f(5)", vars(module))
        assert "x = 5" in out.getvalue(), out.getvalue()


def test_the_profiler_names_the_function(host: Host) -> None:
    import cProfile
    import pstats

    module = held(host, "f", "def f(x):\n    return [sum(range(x))]\n", "f(x)")
    profile = cProfile.Profile()
    profile.runcall(module.f, 10)
    stats: Any = pstats.Stats(profile)
    assert [entry[0] for key, entry in stats.stats.items() if key[0] == module.__file__ and key[2] == "f"] == [1]


def test_mocks_and_wraps(host: Host) -> None:
    from unittest import mock

    module = held(host, "f", "def f(x): return [x]\n", "f(x)")
    with mock.patch.object(module, "f", autospec=True) as double:
        double.return_value = 5
        assert module.f(1) == 5
        with pytest.raises(TypeError):
            module.f(1, 2)
    spec: Callable[..., Any] = mock.create_autospec(module.f)
    assert str(inspect.signature(spec)) == "(x)" and module.f(2) == [2]
