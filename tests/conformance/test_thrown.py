"""Errors that are thrown into a recorded function, or pass through one, have the traceback of a bare run."""

from __future__ import annotations

import re

import pytest

from autotrace.spool.records import Close

from .conftest import Host

SOURCE = '''
import asyncio, contextlib, traceback

def generator():
    try: yield 1
    finally: pass
def turns():
    try: yield 1
    except ValueError: raise KeyError("k")
def turns_from():
    try: yield 1
    except ValueError as error: raise KeyError("k") from error
def answers():
    kept = None
    while True:
        try: kept = yield kept
        except ValueError as error: kept = error
def raises():
    yield 1
    raise KeyError("own")
def outer():
    yield from generator()
def gives():
    return generator()
async def async_generator():
    try: yield 1
    finally: pass
async def async_turns():
    try: yield 1
    except ValueError: raise KeyError("k")
@contextlib.contextmanager
def manager():
    try: yield 1
    finally: pass
@contextlib.contextmanager
def turning():
    try: yield 1
    except ValueError: raise KeyError("k")
@contextlib.contextmanager
def silent():
    try: yield 1
    except ValueError: pass
@contextlib.asynccontextmanager
async def async_manager():
    try: yield 1
    finally: pass
@contextlib.asynccontextmanager
async def async_turning():
    try: yield 1
    except ValueError: raise KeyError("k")
async def coroutine():
    await asyncio.sleep(1)
async def coroutine_turns():
    try: await asyncio.sleep(1)
    except ValueError: raise KeyError("k")
def gives_coroutine():
    return coroutine()

class Show:
    """What a program sees of an error; not recorded."""
    def __call__(self, call):
        try:
            found = call()
        except BaseException as error:
            found = error
        texts = []
        while isinstance(found, BaseException):
            texts.append([type(found).__name__, *(one.name for one in traceback.extract_tb(found.__traceback__))])
            found = found.__cause__ or found.__context__
        return texts
def raised():
    def inner(): raise ValueError("v")
    try: inner()
    except ValueError as error: return error
def thrown(made, *errors):
    next(made)
    for error in errors:
        found = made.throw(error)
    return found
def used(made):
    with made: raise ValueError("v")
def stacked():
    with contextlib.ExitStack() as stack:
        stack.enter_context(manager()); stack.enter_context(turning())
        raise ValueError("v")
def kept():
    error = raised()
    with silent(): raise error
    return error
def sent(made):
    made.send(None)
    made.throw(ValueError("x"))
async def athrown(made, error):
    await made.__anext__()
    await made.athrow(error)
async def aused(made):
    async with made: raise ValueError("v")
async def cancelled():
    task = asyncio.create_task(coroutine())
    await asyncio.sleep(0)
    task.cancel()
    await task
CALLS = [
    *(lambda made=made, error=error: thrown(made(), error())
      for made in (generator, turns, turns_from, raises, outer, gives)
      for error in (lambda: ValueError("x"), raised, GeneratorExit)),
    lambda: thrown(answers(), ValueError("x")), lambda: thrown(answers(), ValueError("x"), KeyError("y")),
    lambda: list(raises()), stacked, kept, *(lambda made=made: used(made()) for made in (manager, turning)),
    *(lambda made=made, error=error: asyncio.run(athrown(made(), error())) for made in (async_generator, async_turns)
      for error in (lambda: ValueError("x"), raised)),
    *(lambda made=made: asyncio.run(aused(made())) for made in (async_manager, async_turning)),
    *(lambda made=made: sent(made()) for made in (coroutine, coroutine_turns, gives_coroutine)),
    lambda: asyncio.run(cancelled()),
]
def seen(show=Show.__call__):
    return [show(None, call) for call in CALLS]
'''


def test_a_thrown_error_has_the_traceback_of_a_bare_run(host: Host) -> None:
    bare = host.load("bare_throws", SOURCE).seen()
    host.watch("throws.**")
    module = host.load("throws", SOURCE)
    assert module.seen() == bare
    assert {"generator", "manager", "coroutine", "async_generator"} <= set(host.opened())


DEEP = """
import asyncio
def inner(x):
    raise KeyError(x)
def outer(x):
    return inner(x)
async def awaited(x):
    await asyncio.sleep(0)
    return outer(x)
def items(x):
    yield outer(x)
"""


@pytest.mark.parametrize("call", ["outer(1)", "asyncio.run(awaited(1))", "next(items(1))"])
def test_a_recorded_stack_has_each_function_once(host: Host, call: str) -> None:
    host.watch("deep.**")
    with pytest.raises(KeyError):
        eval(call, vars(host.load("deep", DEEP)))
    for close in host.records(Close):
        names = re.findall(r"in (inner|outer|awaited|items)\b", close.error[2])
        assert names and len(names) == len(set(names)), close.error[2]
