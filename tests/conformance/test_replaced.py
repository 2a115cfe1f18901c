"""A callable without Python code is recorded at the name that a spec gives, through wrapt, and nowhere else."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from autotrace.config.plan import BY_NAME, Target
from autotrace.spool.records import Close, Open

from .conftest import Host

BEFORE = "import collections, functools, math, operator, _bisect, _heapq\nimport numpy\n"
CALLABLES = {
    "function in C": ("f = math.hypot", "f(3.0, 4.0)", "builtin_function_or_method"),
    "function in C without a signature": ("f = max", "f(3.0, 4.0)", "builtin_function_or_method"),
    "ufunc": ("f = numpy.add", "f(1, 2)", "ufunc"),
    "ufunc's own methods": ("f = numpy.add", "f.reduce([1, 2, 3])", None),
    "partial of C": ("f = functools.partial(math.pow, 2.0)", "f(3.0)", "partial"),
    "cache of C": ("f = functools.lru_cache(math.sqrt)", "f(9.0)", "_lru_cache_wrapper"),
    "instance of a class in C": ("f = operator.itemgetter(1)", "f([1, 2])", "itemgetter"),
    "bound method of C": ("f = [3, 1, 2].index", "f(1)", "builtin_function_or_method"),
    "class's function in C": ("class C:\n sqrt = staticmethod(math.sqrt)\nf = C", "f.sqrt(4.0), f().sqrt(9.0)", None),
}
DESCRIPTOR = """
import math
class Bound:
    def __init__(self, owner): self.owner = owner
    def __call__(self, x): return [type(self.owner).__name__, x]
class Own:
    __slots__ = ()
    def __get__(self, instance, owner=None): return self if instance is None else Bound(instance)
class Tool:
    run = Own()
    root = math.sqrt
    size = str.__len__
"""


@pytest.mark.parametrize("name", CALLABLES)
def test_it_gives_the_same_and_is_recorded(host: Host, name: str) -> None:
    source, call, kind = CALLABLES[name]
    target = "C.sqrt" if "f = C" in source else "f"
    bare = host.load("bare_c", BEFORE + source)
    host.watch(f"same_c.{target}")
    module = host.load("same_c", BEFORE + source)
    assert eval(call, vars(module)) == eval(call, vars(bare)), name
    assert host.reports()[f"same_c:{target}"] == ("bound", "replaced (wrapt)")
    calls = 0 if "reduce" in call else call.count("sqrt") or 1
    assert host.opened() == [target] * calls
    assert kind is None or type(module.f.__wrapped__).__name__ == kind
    host.stop()
    assert eval(call, vars(module)) == eval(call, vars(bare)) and type(module.f) is type(bare.f)


def test_arguments_have_the_names_that_c_code_tells(host: Host) -> None:
    host.watch("same_c.f")
    module = host.load("same_c", "import _bisect\nf = _bisect.bisect_left")
    assert module.f([1, 2, 3], 2, lo=1) == 1
    (opened,) = host.records(Open)
    assert opened.inputs == {"a": [1, 2, 3], "x": 2, "lo": 1}


def test_a_method_is_bound_and_an_error_has_no_frame_of_ours(host: Host) -> None:
    host.watch("same_c.Tool.root", "same_c.Tool.run", "same_c.Tool.size")
    module = host.load("same_c", DESCRIPTOR)
    tool = module.Tool()
    assert tool.run(3) == ["Tool", 3] and tool.root(16.0) == module.Tool.root(16.0) == 4.0
    with pytest.raises(TypeError) as raised:
        tool.size()
    with pytest.raises(ValueError) as failed:
        tool.root(-1.0)
    assert all(entry.name != "_recorded" for error in (raised, failed) for entry in error.traceback) or (
        sys.version_info < (3, 11)
    )
    statuses = [record.status for record in host.records(Close)]
    assert statuses == ["OK", "OK", "OK", "ERROR"]  # no descriptor of a string binds to a tool


def test_pickles_and_copies_are_the_original_s(host: Host) -> None:
    source = "import functools, math\nf = math.sqrt\np = functools.partial(math.pow, 2.0)\n" + DESCRIPTOR
    host.watch("same_c.f", "same_c.p", "same_c.Tool.run")
    module = host.load("same_c", source)
    tool = module.Tool()
    for value in (module.f, module.p):
        assert copy.copy(value)(2.0) == copy.deepcopy([value])[0](2.0) == value(2.0)
        assert pickle.loads(pickle.dumps(value)) is value
    assert copy.deepcopy(tool.run)(1) == pickle.loads(pickle.dumps(module.Tool)).run.__get__(tool)(1)
    assert hash(module.f) == hash(module.f.__wrapped__) and module.f == module.f.__wrapped__
    without = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('autotrace', 'wrapt'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import pickle; f, p = pickle.loads(bytes.fromhex(sys.argv[2])); print(f(4.0), p(3.0), type(f).__name__)"
    )
    for dumps in (pickle.dumps, cloudpickle.dumps):
        command = [sys.executable, "-c", without, str(host.code), dumps((module.f, module.p)).hex()]
        said = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert said.stdout == "2.0 8.0 builtin_function_or_method\n", said.stderr


PROGRAM = """
import math, pickle, subprocess, sys
import cloudpickle
from autotrace.adapters import registry
from autotrace.config.plan import BY_NAME, Plan, Settings, Target

def f(x): return [x]
class Tool:
    root = math.sqrt
    def run(self, x): return [x]

names = ("f", "Tool.root", "Tool.run")
targets = tuple(Target(name, (f"__main__.{name}",), how=BY_NAME) for name in names)
registry.start(Plan(targets, Settings(), "digest"), sys.argv[1], "run-1")
assert [type(one).__name__ for one in (f, Tool.__dict__["root"], Tool.__dict__["run"])] == ["Replacement"] * 3
assert pickle.loads(pickle.dumps(f)) is f
other = "import pickle; f, T = pickle.loads(bytes.fromhex(input())); print(f(1), T().root(4.0), T().run(2))"
given = cloudpickle.dumps((f, Tool)).hex()
print(subprocess.run([sys.executable, "-c", other], input=given, capture_output=True, text=True))
"""


def test_a_class_of_the_program_is_pickled_by_value(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(tmp_path / "run")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2])
    assert "stdout='[1] 2.0 [2]\\n', stderr=''" in said.stdout, said.stderr


def test_a_function_by_name_keeps_its_code(host: Host) -> None:
    source = (
        "import warnings\n"
        "def f(x, y=1):\n warnings.warn('here', stacklevel=2)\n return [x, y]\n"
        "async def later(x): return x\n"
        "def items(x): yield x\n"
        "class Tool:\n"
        " def run(self, x): return [x]\n"
        " @classmethod\n def make(cls, x): return [cls.__name__, x]\n"
        "early = f\n"
    )
    names = ("f", "later", "items", "Tool.run", "Tool.make")
    host.watch(*(Target(f"same_c.{name}", (f"same_c.{name}",), how=BY_NAME) for name in names))
    module = host.load("same_c", source)
    assert module.early.__code__ is module.f.__wrapped__.__code__ and module.early.__code__.co_name == "f"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert module.f(2) == module.early(2) == [2, 1]
    assert [one.filename for one in caught] == [__file__] * 2
    assert asyncio.run(module.later(3)) == 3 and list(module.items(4)) == [4]
    assert module.Tool().run(5) == module.Tool.run(module.Tool(), 5) == [5] and module.Tool.make(6) == ["Tool", 6]
    assert inspect.iscoroutinefunction(module.later) and str(inspect.signature(module.f)) == "(x, y=1)"
    assert sorted(host.opened()) == sorted(["f", "later", "items", "Tool.run", "Tool.run", "Tool.make"])
    assert {reason for _, reason in host.reports().values()} == {"replaced (wrapt)"}
    assert all(record.status == "OK" for record in host.records(Close))


REFUSED = {
    "collections.deque.append": "no attribute of `deque` can be set",
    "same_c.Thing": "it is a class",
    "same_c.math": "it is a module",
    "same_c.limit": "it is not callable (int)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_hold_a_wrapper_says_why(host: Host, name: str) -> None:
    host.watch(name)
    host.load("same_c", "import math, collections\nlimit = 3\nclass Thing: pass\n")
    ((state, reason),) = host.reports().values()
    assert state == "refused" and (reason.startswith(REFUSED[name]) or "autotrace uses" in reason)


def test_a_pattern_leaves_callables_in_c_alone(host: Host) -> None:
    host.watch("same_c.*")
    module: Any = host.load("same_c", "import math\nf = math.sqrt\ndef g(x): return f(x)\n")
    assert module.g(4.0) == 2.0 and type(module.f) is type(len) and host.opened() == ["g"]
