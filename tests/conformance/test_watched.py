"""Functions that are only watched: the host sees no difference, and what they raise is noted in their caller."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import time
import weakref
from types import ModuleType
from typing import Any

import pytest

from autotrace.config.plan import Settings, Target
from autotrace.patch import attach, wrapper
from autotrace.record import template
from autotrace.spool.records import Close

from .conftest import Host
from .kinds import KINDS, Kind, finished, stepped
from .pair import Pair
from .test_matrix import CASES, Case, Number

_OTHERS = ("async generator", "context manager", "async context manager", "callable instance")
WATCHABLE = [kind for kind in KINDS if kind.name not in _OTHERS]


def watched(host: Host, kind: Kind, *, armed: bool = False) -> Pair:
    """The subjects, in one of which the function of ``kind`` is watched."""
    pair = Pair(host)
    owner: Any = pair.traced
    *path, attribute = kind.target.split(".")
    for word in path:
        owner = getattr(owner, word)
    function = attach.function_in(attach.member(owner, attribute), owner, attribute)
    assert function is not None
    wrapper.watch(function)
    if armed:
        wrapper.arm(wrapper.original_of(function))
    assert wrapper.key_of(function) is None and wrapper.original_of(function) is not function
    return pair


@pytest.mark.parametrize("armed", [False, True], ids=["watched", "armed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", WATCHABLE, ids=lambda kind: kind.name)
def test_the_host_sees_no_difference(host: Host, kind: Kind, case: Case, armed: bool) -> None:
    watched(host, kind, armed=armed).same(lambda module: case(kind, module))
    assert host.records(Close) == []


@pytest.mark.parametrize("kind", WATCHABLE, ids=lambda kind: kind.name)
def test_nothing_of_a_call_is_kept_alive(host: Host, kind: Kind) -> None:
    pair = watched(host, kind)
    gc.collect()
    gc.disable()
    try:
        argument, error = Number(), None
        seen = weakref.ref(argument)
        finished(kind.start(pair.traced, argument), stepped)
        try:
            finished(kind.start(pair.traced, argument, fail=True), stepped)
        except ValueError as raised:
            error = weakref.ref(raised)
        del argument
        assert error is not None and error() is None
        assert seen() is None
    finally:
        gc.enable()


def test_what_is_watched_can_still_be_recorded_and_is_put_back(host: Host) -> None:
    function = host.load("helpers", "def helper(): return 1\n").helper
    own = function.__code__
    host.watch()
    wrapper.watch(function)
    wrapper.place(function, "key")
    assert wrapper.key_of(function) == "key" and wrapper.original_of(function).__code__ is own
    host.stop()
    assert function.__code__ is own


SOURCE = """
import asyncio, contextlib, functools, threading
from concurrent.futures import ThreadPoolExecutor

class Down(Exception): pass

def judge(x):
    if x: raise TimeoutError(f"no answer to {x}")
    return 1.0
def score(x):
    try: return judge(x)
    except Exception: return 0.0

class Judge:
    weight = 2
    def __init__(self, fail=False):
        if fail: raise ConnectionError("no judge")
    def method(self, x): return judge(x)
    @classmethod
    def of_class(cls, x): return judge(x)
    @staticmethod
    def static(x): return judge(x)
    def score_method(self, x):
        try: return self.method(x)
        except Exception: return 0.0
    def score_class(self, x):
        try: return self.of_class(x)
        except Exception: return 0.0
    def score_static(self, x):
        try: return self.static(x)
        except Exception: return 0.0
class Special(Judge):
    def method(self, x): raise Down("special")
the_judge = Judge()
def score_instance(x):
    try: return the_judge.method(x)
    except Exception: return 0.0
def score_made(x):
    try: return Judge(fail=x).weight
    except Exception: return 0.0

def make():
    def inner(x): return judge(x)
    def score_closure(x):
        try: return inner(x)
        except Exception: return 0.0
    return score_closure
score_closure = make()

def items(x):
    yield 1
    yield judge(x)
def score_generator(x):
    try: return sum(items(x))
    except Exception: return 0.0
async def ask(x):
    await asyncio.sleep(0)
    return judge(x)
async def waits(x):
    try: return await ask(x)
    except Exception: return 0.0
def score_coroutine(x): return asyncio.run(waits(x))
async def gathers(x):
    found = await asyncio.gather(ask(x), ask(0), return_exceptions=True)
    return found[1] if isinstance(found[0], Exception) else 0.5
def score_gathered(x): return asyncio.run(gathers(x))
def score_thread(x):
    with ThreadPoolExecutor(1) as pool:
        return 0.0 if pool.submit(judge, x).exception() else 1.0
def score_suppressed(x):
    with contextlib.suppress(Exception):
        return judge(x)
    return 0.0
def grade(x):
    return judge(x)
def score_deep(x):
    try: return grade(x)
    except Exception: return 0.0
def both(x):
    try: return judge(x)
    except ValueError: return 0.5
def score_through(x):
    try: return both(x)
    except Exception: return 0.0

flaky = [0]
def unsteady():
    flaky[0] += 1
    if flaky[0] % 3: raise ConnectionError("try again")
    return 1.0
def score_retries(x):
    for _ in range(5):
        try: return unsteady()
        except ConnectionError: continue
def parse(x): return float(x)
def score_builtin(x):
    try: return float("one")
    except ValueError: return 0.0
def score_raises(x):
    try: return judge(x)
    except TimeoutError as error: raise RuntimeError("gave up") from error
def score_again(x):
    try: return judge(x)
    except TimeoutError: raise
def catches_nothing(x): return judge(x)
def repeats(x):
    for _ in range(40):
        try: judge(x)
        except Exception: pass
    return 0.0
"""


def swallowed(host: Host, module: ModuleType, name: str) -> Any:
    """What the one call of ``name`` swallowed."""
    owner: Any = module
    for word in name.split("."):
        owner = getattr(owner() if isinstance(owner, type) else owner, word)
    owner(1)
    (close,) = host.records(Close)
    return (close.attributes or {}).get("swallowed")


def started(host: Host, *names: str, source: str = SOURCE, **more: Any) -> ModuleType:
    host.watch(*(Target(f"rewards.{name}", (f"rewards.{name}",), role="reward", **more) for name in names))
    return host.load("rewards", source)


@pytest.mark.parametrize(("name", "at"), [
    ("score", "judge"), ("Judge.score_method", "judge"), ("Judge.score_class", "judge"),
    ("Judge.score_static", "judge"), ("score_instance", "judge"), ("score_closure", "judge"),
    ("score_generator", "judge"), ("score_coroutine", "judge"), ("score_gathered", "judge"),
    ("score_thread", "judge"), ("score_suppressed", "judge"), ("score_deep", "judge"), ("score_made", "__init__"),
])  # fmt: skip
def test_what_a_caller_swallowed_is_in_its_call(host: Host, name: str, at: str) -> None:
    (note,) = swallowed(host, started(host, name), name)
    error, message = ("TimeoutError", "no answer to 1") if at == "judge" else ("ConnectionError", "no judge")
    line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if f"raise {error}" in text)
    assert (note["error"], note["message"], note["at"]) == (error, message, f"{at} (rewards.py:{line})")
    assert note["times"] == 1 and note["seconds"] >= 0


def test_the_code_that_caught_it_is_named(host: Host) -> None:
    (note,) = swallowed(host, started(host, "score_through"), "score_through")
    assert note["caught"].startswith("score_through (rewards.py:") and note["through"] == ["both"]


def test_an_override_of_the_object_is_watched(host: Host) -> None:
    module = started(host, "Judge.score_method")
    module.Special().score_method(1)
    (close,) = host.records(Close)
    assert [note["error"] for note in close.attributes["swallowed"]] == ["rewards.Down"]


@pytest.mark.parametrize("name", ["score_retries", "score_builtin", "catches_nothing", "score_raises", "score_again"])
def test_what_was_made_good_or_went_on_is_not_swallowed(host: Host, name: str) -> None:
    module = started(host, name)
    for _ in range(2):
        with contextlib.suppress(RuntimeError, TimeoutError):
            getattr(module, name)(1)
    assert [(close.attributes or {}).get("swallowed") for close in host.records(Close)] == [None, None]


def test_nothing_is_watched_where_nobody_catches(host: Host) -> None:
    module = started(host, "catches_nothing")
    assert module.catches_nothing(0) == 1.0
    assert wrapper.original_of(module.judge) is module.judge


def test_failures_of_one_kind_are_counted(host: Host) -> None:
    (note,) = swallowed(host, started(host, "repeats"), "repeats")
    assert note["times"] == 40


@pytest.mark.parametrize("switched", ["entry", "settings"])
def test_it_can_be_switched_off(host: Host, switched: str) -> None:
    target = Target("rewards.score", ("rewards.score",), role="reward", watch=switched != "entry")
    host.watch(target, settings=Settings(flush_interval=0.02, watch=switched != "settings"))
    assert swallowed(host, host.load("rewards", SOURCE), "score") is None


HOSTILE = """
import sys
def deletes():
    del globals()["deletes"]
    raise OSError("gone")
def score_deletes(x):
    try: return deletes()
    except OSError: return 0.0
def deep(n): return 1 + deep(n - 1) if n else 1
def score_deep(x):
    try: return deep(x)
    except RecursionError: return 0
def even(n): return odd(n - 1) if n else 0
def odd(n): return even(n - 1) if n else 1
def score_mutual(x):
    try: return even(x)
    except RecursionError: return -1
class Node:
    def __init__(self, below): self.below = below
    def depth(self): return 1 + (self.below.depth() if self.below else 0)
def tree(n):
    node = None
    for _ in range(n): node = Node(node)
    return node
def score_tree(x):
    try: return tree(x).depth()
    except RecursionError: return -1
def huge(x): raise OSError("word " * 200_000)
def score_huge(x):
    try: huge(x)
    except OSError: return 0.0
def tells(x): raise OSError("rejected: api_key=sk-abcdefghijklmnopqrstuvwxyz123456 of user")
def score_secret(x):
    try: tells(x)
    except OSError: return 0.0
class Odd(Exception):
    def __str__(self): raise KeyError
    __repr__ = __str__
    def __getattribute__(self, name): raise KeyError
def odd_error(x): raise Odd("odd")
def score_odd(x):
    try: odd_error(x)
    except Exception: return 0.0
def looks(x): return sys._getframe(1).f_code.co_name
def score_looks(x):
    try: return looks(x)
    except OSError: return 0.0
def stops(x): raise StopIteration
def score_stops(x):
    try: stops(x)
    except StopIteration: return 0.0
def exits(x): raise SystemExit(3)
def score_exits(x):
    try: exits(x)
    except SystemExit: return 0.0
def other(x): raise OSError("other")
def exchanged(x): raise OSError("first")
def score_exchanged(x):
    exchanged.__code__ = other.__code__
    try: exchanged(x)
    except OSError as error: return str(error)
"""


def hostile(host: Host, name: str, x: Any = 1) -> tuple[Any, Any]:
    """What the call returned, and what it swallowed."""
    module = started(host, name, source=HOSTILE)
    result = getattr(module, name)(x)
    return result, [(close.attributes or {}).get("swallowed") for close in host.records(Close)][-1]


def test_a_helper_that_deletes_itself(host: Host) -> None:
    result, (note,) = hostile(host, "score_deletes")
    assert result == 0.0 and note["message"] == "gone"


@pytest.mark.parametrize("name", ["score_deep", "score_mutual", "score_tree"])
def test_what_calls_itself_comes_as_deep_as_before(host: Host, name: str) -> None:
    deep = sys.getrecursionlimit() - len(inspect.stack()) - 60
    result, notes = hostile(host, name, deep)
    assert result == {"score_deep": deep + 1, "score_mutual": deep % 2, "score_tree": deep}[name] and notes is None


def test_a_message_is_bounded(host: Host) -> None:
    assert len(hostile(host, "score_huge")[1][0]["message"]) <= 300


def test_a_secret_in_a_message_is_masked(host: Host) -> None:
    (note,) = hostile(host, "score_secret")[1]
    assert note["message"].startswith("rejected: api_key=") and "abcdef" not in note["message"]


def test_nothing_of_an_exception_is_called(host: Host) -> None:
    result, (note,) = hostile(host, "score_odd")
    assert (result, note["error"], note["message"]) == (0.0, "rewards.Odd", "odd")


@pytest.mark.parametrize("name", ["score_stops", "score_exits"])
def test_what_steers_the_program_is_no_failure(host: Host, name: str) -> None:
    assert hostile(host, name) == (0.0, None)


def test_who_looks_at_its_caller_is_not_watched(host: Host) -> None:
    assert hostile(host, "score_looks") == ("score_looks", None)


def test_code_that_the_host_exchanged_stays(host: Host) -> None:
    result, (note,) = hostile(host, "score_exchanged")
    assert (result, note["message"]) == ("other", "other")
    host.stop()
    assert sys.modules["rewards"].exchanged.__code__ is sys.modules["rewards"].other.__code__


def test_the_note_holds_nothing_of_the_hosts(host: Host) -> None:
    module = started(host, "score_kept", source="""
class Failure(Exception): pass
def judge(x): raise Failure(x)
def score_kept(x, seen):
    try: judge(x)
    except Failure as error: seen.append(__import__("weakref").ref(error))
    return seen[0]() is None
""")  # fmt: skip
    gc.disable()
    try:
        assert module.score_kept(object(), [])
    finally:
        gc.enable()


def test_the_text_of_a_watched_function_is_smaller_than_any_other() -> None:
    def subject(a: int, b: int) -> None: ...

    code = template.code_for(subject, template.WATCHED, False, False, False)
    assert len(code.co_code) < len(template.code_for(subject, "key", False, False, False).co_code)


def test_an_exception_looks_at_no_other_function(host: Host) -> None:
    """The first exception of a watched function arms it: in the same time beside 5,000 other functions."""

    def made(count: int) -> list[Any]:
        names: dict[str, Any] = {}
        exec("".join(f"def judge_{number}(x): raise ValueError(x)\n" for number in range(count)), names)
        found = [value for name, value in names.items() if name.startswith("judge_")]
        for function in found:
            wrapper.watch(function)
        return found

    def typical() -> int:
        times = []
        for function in made(21):
            original = wrapper.original_of(function)
            began = time.thread_time_ns()
            wrapper.arm(original)
            times.append(time.thread_time_ns() - began)
        return sorted(times)[10]

    typical()  # makes the code of this shape
    few = typical()
    others = made(5_000)
    assert typical() < 5 * few and others
