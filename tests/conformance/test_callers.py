"""Each kind of function by each way of looking at its callers: what is seen from inside is the same bare and traced.

Where a wrapper's frame would be seen, the function is refused, with the reason. What is seen and not refused is a row
of ``DIFFERS``, and stands in ``docs/limits.md``.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from types import ModuleType
from typing import Any

import pytest

from autotrace.config.plan import Target

from .conftest import Host
from .kinds import finished
from .pair import BARE, TRACED, plain

KINDS = {
    "function": "def subject():\n    return LOOK\n",
    "coroutine": "async def subject():\n    return LOOK\n",
    "generator": "def subject():\n    yield LOOK\n",
    "async generator": "async def subject():\n    yield LOOK\n",
    "context manager": "@contextlib.contextmanager\ndef subject():\n    yield LOOK\n",
    "async context manager": "@contextlib.asynccontextmanager\nasync def subject():\n    yield LOOK\n",
    "method": "class Thing:\n    def subject(self):\n        return LOOK\nsubject = Thing().subject\n",
    "async method": "class Thing:\n    async def subject(self):\n        return LOOK\nsubject = Thing().subject\n",
    "static method": (
        "class Thing:\n    @staticmethod\n    def subject():\n        return LOOK\nsubject = Thing.subject\n"
    ),
    "class method": (
        "class Thing:\n    @classmethod\n    def subject(cls):\n        return LOOK\nsubject = Thing.subject\n"
    ),
    "decorated": (
        "def passed(function):\n"
        "    @functools.wraps(function)\n"
        "    def call(*args):\n"
        "        return function(*args)\n"
        "    return call\n"
        "@passed\ndef subject():\n    return LOOK_ABOVE\n"
    ),
    "returns a coroutine": "async def later():\n    return LOOK\ndef subject():\n    return later()\n",
    "returns a generator": "def later():\n    yield LOOK\ndef subject():\n    return later()\n",
    "returns an async generator": "async def later():\n    yield LOOK\ndef subject():\n    return later()\n",
    "returns a context manager": (
        "@contextlib.contextmanager\ndef later():\n    yield LOOK\ndef subject():\n    return later()\n"
    ),
}
"""The text of ``subject``. ``LOOK`` stands for the expression of a way of looking, ``LOOK_ABOVE`` for one that looks up
one frame more."""

SEEN = "({0}.f_code.co_name, {0}.f_globals.get('__name__'))"

WRAPPER = {
    "_getframe(1)": (SEEN.format("sys._getframe(1)"), SEEN.format("sys._getframe(2)")),
    "_getframe of a variable": (SEEN.format("sys._getframe(ONE)"), SEEN.format("sys._getframe(ONE + 1)")),
    "f_back": (SEEN.format("sys._getframe().f_back"), SEEN.format("sys._getframe().f_back.f_back")),
    "currentframe": (SEEN.format("inspect.currentframe().f_back"), SEEN.format("inspect.currentframe().f_back.f_back")),
    "inspect.stack": ("inspect.stack()[1][3]", "inspect.stack()[2][3]"),
    "from inspect import stack": ("stack()[1][3]", "stack()[2][3]"),
    "getouterframes": (
        "inspect.getouterframes(inspect.currentframe())[1][3]", "inspect.getouterframes(inspect.currentframe())[2][3]",
    ),
    "extract_stack": ("traceback.extract_stack()[-2].name", "traceback.extract_stack()[-3].name"),
    "format_stack": (
        "traceback.format_stack()[-2].split(', ')[0]", "traceback.format_stack()[-3].split(', ')[0]",
    ),
    "helper": (SEEN.format("two_up()"), SEEN.format("three_up()")),
    "helper with f_back": (SEEN.format("two_back()"), SEEN.format("two_back().f_back")),
}  # fmt: skip
"""Ways that find the frame of a wrapper: such a function is refused."""

SAME = {
    "own frame": SEEN.format("sys._getframe()"),
    "own frame, by a helper": SEEN.format("one_up()"),
    "warn": "warned(lambda: None, warnings.warn('w', stacklevel=1))",
    "warn, stacklevel 2": "warned(lambda: None, warnings.warn('w', stacklevel=2))",
    "warn, stacklevel 3": "warned(lambda: None, warnings.warn('w', stacklevel=3))",
    "warn, by a helper": "warned(lambda: None, deprecated())",
    "log": "logged(1)",
    "namedtuple": "collections.namedtuple('Made', 'a').__module__",
    "NamedTuple": "typing.NamedTuple('Made', [('a', int)]).__module__",
    "TypedDict": "typing.TypedDict('Made', {'a': int}).__module__",
    "NewType": "typing.NewType('Made', int).__module__",
    "TypeVar": "typing.TypeVar('Made').__module__",
    "Enum": "enum.Enum('Made', 'a').__module__",
    "make_dataclass": "dataclasses.make_dataclass('Made', ['a']).__module__",
}
"""Ways that pass over the frame of a wrapper, or do not reach it: such a function is wrapped."""
if sys.version_info >= (3, 11):
    SAME |= {"log, stacklevel 2": "logged(2)", "log, stacklevel 3": "logged(3)"}

DIFFERS = {
    "behind an alias": (SEEN.format("alias(1)"), SEEN.format("alias(2)")),
    "behind getattr": (SEEN.format("getattr(sys, HIDDEN)(1)"), SEEN.format("getattr(sys, HIDDEN)(2)")),
    "two calls down": (SEEN.format("by_another()"), SEEN.format("above_another()")),
}
"""Ways that find the frame of a wrapper and are not recognised. All are in ``docs/limits.md``."""
if sys.version_info < (3, 11):
    DIFFERS |= {"log, stacklevel 2": ("logged(3)", "logged(4)")}

LOOKING = """
import sys

def one_up(): return sys._getframe(1)
def two_up(): return sys._getframe(2)
def three_up(): return sys._getframe(3)
def two_back(): return sys._getframe().f_back.f_back
"""
HEAD = """
import collections, contextlib, dataclasses, enum, functools, inspect, logging, sys, traceback, typing, warnings
from inspect import stack
from looking import one_up, two_up, three_up, two_back

ONE = 1
HIDDEN = "_get" + "frame"
alias = sys._getframe
logger = logging.getLogger("looking")

def deprecated(): warnings.warn("w", stacklevel=3)
def warned(*done): return "warned"
def logged(level): logger.warning("logged", stacklevel=level)
def by_another(): return three_below()
def three_below(): return sys._getframe(3)
def above_another(): return four_below()
def four_below(): return sys._getframe(4)
"""


class Lines(logging.Handler):
    """Where each logged line says that it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.funcName, record.module, record.lineno))


def seen(module: ModuleType) -> Any:
    """All that a call of ``subject`` from here shows: what it returns, warns of and logs."""
    lines = Lines()
    logging.getLogger("looking").addHandler(lines)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = finished(module.subject())
    finally:
        logging.getLogger("looking").removeHandler(lines)
    return plain([result, [(str(one.message), one.filename, one.lineno) for one in caught], lines.seen])


def observed(host: Host, kind: str, look: str, above: str = "") -> tuple[Any, Any, str, str]:
    """What is seen bare and traced, and what became of the target."""
    source = HEAD + KINDS[kind].replace("LOOK_ABOVE", above or look).replace("LOOK", look)
    host.write("looking", LOOKING)
    bare = host.load(BARE, source)
    path = "Thing.subject" if "class Thing" in source else "subject"
    host.watch(Target(path, (f"{TRACED}.{path}",)))
    traced = host.load(TRACED, source)
    ((state, reason),) = host.reports().values()
    return seen(bare), seen(traced), state, reason


@pytest.mark.parametrize("way", SAME)
@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_over_the_wrapper_sees_what_it_sees_bare(host: Host, kind: str, way: str) -> None:
    bare, traced, state, reason = observed(host, kind, SAME[way])
    assert (state, reason) == ("bound", "in place")
    assert traced == bare
    assert len(host.opened()) == 1


@pytest.mark.parametrize("way", WRAPPER)
@pytest.mark.parametrize("kind", KINDS)
def test_what_would_see_the_wrapper_is_refused(host: Host, kind: str, way: str) -> None:
    bare, traced, state, reason = observed(host, kind, *WRAPPER[way])
    assert state == "refused" and "looks at its caller's frame" in reason
    assert traced == bare


@pytest.mark.parametrize("way", DIFFERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_recognised_sees_the_wrapper(host: Host, kind: str, way: str) -> None:
    bare, traced, state, _ = observed(host, kind, *DIFFERS[way])
    assert state == "bound"
    assert traced != bare


def test_a_helper_of_another_module_or_class_that_looks_at_the_caller_of_its_caller(host: Host) -> None:
    host.write("looked_at.__init__", "")
    host.write("looked_at.frames", LOOKING)
    host.watch("looked_at.use.**")
    module = host.load(
        "looked_at.use",
        "from looked_at import frames\n"
        "class Above:\n"
        "    def _two_up(self):\n        return frames.sys._getframe(2)\n"
        "class Thing(Above):\n"
        "    def method(self):\n        return self._two_up()\n"
        "def function():\n    return frames.two_up()\n",
    )
    here = inspect.currentframe()
    assert module.Thing().method() is here and module.function() is here
    states = {place.partition(":")[2]: state for place, (state, _) in host.reports().items()}
    assert states == {"Thing.method": "refused", "function": "refused"}


def test_pytest_names_the_frame_above_one_that_is_hidden(host: Host) -> None:
    source = "def subject():\n    __tracebackhide__ = True\n    raise ValueError('wrong')\n"
    bare = host.load(BARE, source)
    host.watch(f"{TRACED}.subject")
    traced = host.load(TRACED, source)
    for module in (bare, traced) if sys.version_info >= (3, 11) else (bare,):
        with pytest.raises(ValueError) as caught:
            module.subject()
        assert caught.getrepr().reprcrash.path == __file__  # type: ignore[union-attr]
