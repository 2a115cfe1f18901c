"""A reader of a recorded function's code finds the names, constants, nested code and cache keys of the original."""

from __future__ import annotations

import dis
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import cloudpickle
import dill.detect

from tests.waiting import DEADLINE

from .conftest import Host
from .processes import run

SOURCE = '''
import math

class Graph:
    def invoke(self, x): return x

graph, other, limit, ratio = Graph(), Graph(), 3, 0.25

def plain(x, *rest, k=1, **others):
    """Calls a graph."""
    def inner(y): return other.invoke(y) + 12345
    return graph.invoke(x) + math.floor(ratio) + inner(len(rest)) + len("a constant")
async def coroutine(x):
    return graph.invoke(x), [other.invoke(y) for y in (x, limit)], (lambda z: z * 54321)(x)
def generator(x):
    yield graph.invoke(x)
    yield from (other.invoke(y) for y in range(limit))
async def async_generator(x):
    yield graph.invoke(x)
    yield other.invoke("a constant")
def make(n, below):
    def local(x, *rest):
        def inner(): return below.invoke(n)
        return graph.invoke(x) + inner()
    return local
local = make(5, Graph())
class Node:
    def __call__(self, x): return graph.invoke(x), __class__
    @staticmethod
    def static(x): return other.invoke(x)
node = Node.__call__
static = Node.static
exec("def wide():\\n return " + ", ".join(f"g{n}" for n in range(300)) + ", graph.invoke(limit)")
'''
NAMES = ("plain", "coroutine", "generator", "async_generator", "local", "node", "static", "wide")


def loaded(code: CodeType, operation: str) -> list[Any]:
    """Arguments of an operation in ``code`` itself, the first of each, in order."""
    found = [step.argval for step in dis.get_instructions(code) if step.opname == operation]
    return list(dict.fromkeys(found))


def reached(function: FunctionType) -> set[str]:
    """Attributes of globals and free variables that ``function`` reaches, as LangGraph looks for subgraphs."""
    code = function.__code__
    cells = dict(zip(code.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True))
    names = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    codes, found = [code], set()
    for one in codes:
        codes += [const for const in one.co_consts if isinstance(const, CodeType)]
        value = None
        for step in dis.get_instructions(one):
            tables = {"LOAD_GLOBAL": names, "LOAD_DEREF": cells}
            if step.opname in tables:
                value = tables[step.opname].get(step.argval)
                found.add(f"{step.argval}: {type(value).__name__}")
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and value is not None:
                found.add(f"{step.argval} of {type(value).__name__}")
            else:
                value = None
    return found


def test_a_reader_finds_the_names_constants_and_nested_code_of_the_original(host: Host) -> None:
    bare = host.load("bare_graphs", SOURCE)
    host.watch("graphs.**")
    traced = host.load("graphs", SOURCE)
    for name in NAMES:
        one, other = getattr(bare, name), getattr(traced, name)
        code, original = other.__code__, one.__code__
        assert set(original.co_names) <= set(code.co_names), name
        assert set(map(_shown, original.co_consts)) <= set(map(_shown, code.co_consts)), name
        assert loaded(code, "LOAD_GLOBAL") == loaded(original, "LOAD_GLOBAL"), name
        assert set(loaded(original, "LOAD_DEREF")) <= set(loaded(code, "LOAD_DEREF")), name
        assert reached(one) <= reached(other), name
        had, has = inspect.getclosurevars(one), inspect.getclosurevars(other)
        assert (set(had.globals), set(had.nonlocals)) == (set(has.globals), set(has.nonlocals)), name
        assert set(had.builtins) <= set(has.builtins) and had.unbound <= has.unbound, name
        assert set(dill.detect.globalvars(one)) == set(dill.detect.globalvars(other)), name
        names = cloudpickle.cloudpickle._extract_code_globals
        assert [*names(code)] == [*names(original)], name
    assert traced.plain(1, 2) == bare.plain(1, 2)
    assert host.opened()[0] == "plain"


def _shown(const: object) -> str:
    return f"code of {const.co_name}" if isinstance(const, CodeType) else repr(const)


PROGRAM = """
import functools, json, sys
LIMIT = 3
def helper(x): return x * LIMIT
def plain(x, *rest):
    def inner(y): return y + LIMIT
    return helper(x) + inner(0)
def make(n):
    def local(x): return helper(x) + n
    return local
local = make(5)
async def coroutine(x): return helper(x)
def generator(x): yield helper(x)
class Agent:
    def run(self, x): return plain(x)
    @staticmethod
    def static(x): return [*generator(x)]
if __name__ == "__main__":
    import dask.base, joblib
    from datasets.fingerprint import Hasher
    both = {"plain": plain, "local": local, "coroutine": coroutine, "generator": generator, "static": Agent.static,
            "partial": functools.partial(plain, 2), "several": [plain, {"f": generator}, plain]}
    keys = {}
    for name, value in {**both, "class": Agent, "method": Agent().run}.items():
        keys[f"datasets {name}"] = Hasher.hash(value)
        if name in both:
            keys[f"dask {name}"] = dask.base.tokenize(value)
    cached = joblib.Memory("cache", verbose=0).cache(plain)
    keys["joblib"] = joblib.hash([plain, Agent])
    print(json.dumps([keys, [cached.check_call_in_cache(2), cached(2), cached.check_call_in_cache(2)]]))
"""


def test_a_recorded_function_has_the_cache_keys_of_its_original(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text(PROGRAM)
    bare = subprocess.run(
        [sys.executable, "keys.py"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    keys, cached = json.loads(bare.stdout)
    assert cached == [False, 9, True]
    ran = run(tmp_path, "- keys.**", "keys.py")
    assert json.loads(ran.stdout) == [keys, [True, 9, True]], "the cache of the bare run serves the recorded one"
    assert ran.reports()["keys:plain"][0] == "bound"
