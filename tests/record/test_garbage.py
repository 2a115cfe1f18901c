"""Finalizers set context variables while a collection interrupts a ``set``, a ``reset`` or a copy of the context."""

from __future__ import annotations

import contextvars
import gc
import subprocess
import sys
import weakref
from typing import Any

from autotrace.record import garbage

from .conftest import Recorder

PROGRAM = """
import contextvars, faulthandler, gc
from autotrace.record import garbage

faulthandler.enable()
garbage.watch()
pads = [contextvars.ContextVar(f"pad{number}") for number in range(40)]


class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        for pad in pads:
            pad.set([0])
        self.own = [b"\\xff" * size for size in range(0, 400, 4)]  # takes the memory that was freed


gc.freeze()
for number in range(4000):
    Cycle()
    pad = pads[number % 40]
    gc.set_threshold(gc.get_count()[0] + number % 7)  # so the collection starts in one of the allocations
    token = pad.set([2])
    assert type(pad.get()) is list
    pad.reset(token)
    copy = contextvars.copy_context()
    gc.set_threshold(700)
    assert type(copy.run(pad.get, [])) is list
assert garbage.refuses() is False and not garbage._replaced
"""


class Value:
    """What a variable of the host holds, or a cycle whose finalizer sets the variable."""

    def __init__(self, variable: Any = None) -> None:
        self.own, self.variable = variable and self, variable

    def __del__(self) -> None:
        if self.variable is not None:
            self.variable.set(None)


def test_no_collection_ends_the_process() -> None:
    """Bare, Python 3.10 and 3.11 end this program with SIGSEGV."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_collection_keeps_no_value(recorder: Recorder) -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    variable.set(value := Value())
    gone = weakref.ref(value)
    del value
    gc.collect()
    variable.set(None)
    assert gone() is None and not garbage.collecting


def test_what_a_finalizer_replaced_goes_when_a_trajectory_begins(recorder: Recorder) -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    variable.set(value := Value())
    gone = weakref.ref(value)
    del value
    Value(variable)
    gc.collect()
    assert variable.get() is None
    recorder.wrap(lambda x: x)(1)
    assert gone() is None
