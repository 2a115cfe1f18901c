"""The arguments of a recorded call live as long as those of a bare one: the original alone holds its arguments."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy
import pytest

from autotrace.config.plan import Target

from .conftest import Host

SOURCE = '''
import asyncio, contextlib, functools, weakref

class Batch:
    pass

def freed(batch):
    """A function that tells later whether `batch` is gone."""
    reference = weakref.ref(batch)
    return lambda: reference() is None

class Holder:
    def method(self, batch):
        gone = freed(batch); del batch; return gone()
    @classmethod
    def of_class(cls, batch):
        gone = freed(batch); del batch; return gone()
    @staticmethod
    def static(batch):
        gone = freed(batch); del batch; return gone()
    def itself(self, *args, **kwargs):
        gone = freed(self); del self; return gone()
    async def waits(self, batch, *rest, k=None, **others):
        gone = freed(batch); del batch; await asyncio.sleep(0); return gone()
    def __init__(self, batch=None):
        self.gone = freed(batch or self); del batch; self.is_gone = self.gone()
    def __call__(self, batch):
        gone = freed(batch); del batch; return gone()

def plain(batch):
    gone = freed(batch); del batch; return gone()
def assigns(first, batch, c=3):
    gone = freed(batch); batch = None; return gone()
def by_name(a, *, batch, other=5):
    gone = freed(batch); del batch; return gone()
def by_position(batch, /, x=1):
    gone = freed(batch); del batch; return gone()
def several(a, *batches, k=0):
    gone = freed(batches[0]); del batches; return gone()
def named(a, *rest, k=None, **others):
    gone = freed(others["batch"]); others.clear(); return gone()
def named_before(a, *rest, k=None, **others):
    first, second = freed(a), freed(k); del a, k; return first(), second()
def cell(batch):
    def inner(): return batch
    gone = freed(inner()); del batch; return gone()
def catches(batch):
    gone = freed(batch); del batch
    try: raise ValueError
    except ValueError: return gone()
def raises(batch):
    error = ValueError(freed(batch)); del batch; raise error
def generator(batch):
    gone = freed(batch); del batch; yield gone()
def generator_of_several(*batches, **others):
    gone = freed(batches[0]); del batches; yield gone()
async def coroutine(batch):
    gone = freed(batch); del batch; await asyncio.sleep(0); return gone()
async def coroutine_of_several(*batches, **others):
    gone = freed(batches[0]); del batches; await asyncio.sleep(0); return gone()
async def async_generator(batch):
    gone = freed(batch); del batch; await asyncio.sleep(0); yield gone()
async def async_generator_of_several(*batches, **others):
    gone = freed(batches[0]); del batches; await asyncio.sleep(0); yield gone()
@contextlib.contextmanager
def manager(batch):
    gone = freed(batch); del batch; yield gone()
@contextlib.asynccontextmanager
async def async_manager(batch):
    gone = freed(batch); del batch; yield gone()
def gives_coroutine(batch):
    return coroutine(batch)
def gives_generator(batch):
    return generator(batch)
def gives_back(batch):
    return batch
def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return function(*args, **kwargs)
    return wrapper
@decorate
def decorated(batch):
    gone = freed(batch); del batch; return gone()
def make(n):
    def local(batch):
        gone = freed(batch); del batch; return (n, gone())
    return local
local = make(1)
def make_several(n):
    def local(*batches, **others):
        gone = freed(batches[0]); del batches; return (n, gone())
    return local
local_of_several = make_several(1)
exec("def wide(" + "".join(f"a{n}, " for n in range(300)) + "batch): gone = freed(a0); del a0; return gone()")
exec("def broad(" + "".join(f"a{n}, " for n in range(100)) + "batch): gone = freed(batch); del batch; return gone()")

def error_of(call):
    try: call()
    except ValueError as error: return error.args[0]()
def kept(make):
    batch = Batch(); gone = freed(batch); held = make(batch); del batch
    return gone(), held is not None
def started(make):
    batch = Batch(); gone = freed(batch); held = make(batch); del batch
    before = gone(); next(held); return before, gone()
def in_with():
    with manager(Batch()) as gone: return gone
async def asynchronous():
    found = [await coroutine(Batch()), await coroutine_of_several(Batch(), z=1), await gives_coroutine(Batch())]
    found += await asyncio.gather(coroutine(Batch()), coroutine_of_several(Batch()))
    found += [await asyncio.create_task(coroutine(Batch())), await Holder().waits(Batch(), 2, k=3, z=4)]
    async for gone in async_generator(Batch()): found.append(gone)
    async for gone in async_generator_of_several(Batch()): found.append(gone)
    async with async_manager(Batch()) as gone: found.append(gone)
    return found

CALLS = {
    "plain": lambda: plain(Batch()), "plain by name": lambda: plain(batch=Batch()),
    "second": lambda: assigns(1, Batch()), "keyword only": lambda: by_name(1, batch=Batch()),
    "position only": lambda: by_position(Batch()), "*args": lambda: several(1, Batch(), 3),
    "*args and a keyword": lambda: several(1, Batch(), 3, k=5),
    "**kwargs": lambda: named(1, 2, k=3, batch=Batch()),
    "before * and **": lambda: named_before(Batch(), 2, k=Batch(), z=3),
    "captured": lambda: cell(Batch()), "in an except": lambda: catches(Batch()),
    "raised": lambda: error_of(lambda: raises(Batch())),
    "method": lambda: Holder().method(Batch()), "class method": lambda: Holder.of_class(Batch()),
    "static method": lambda: Holder.static(Batch()), "self": lambda: Holder().itself(1, a=2),
    "instance": lambda: Holder()(Batch()), "__init__": lambda: Holder(Batch()).is_gone,
    "generator": lambda: next(generator(Batch())),
    "generator with *args": lambda: next(generator_of_several(Batch())),
    "generator of a function": lambda: next(gives_generator(Batch())), "unstarted": lambda: kept(generator),
    "started": lambda: started(generator), "started of a function": lambda: started(gives_generator),
    "result": lambda: kept(gives_back), "with": in_with, "decorated": lambda: decorated(Batch()),
    "local": lambda: local(Batch()), "local with *args": lambda: local_of_several(Batch()),
    "from C": lambda: next(map(plain, [Batch()])), "unpacked": lambda: plain(*[Batch()]),
    "300 parameters": lambda: wide(Batch(), *range(300)), "100 parameters": lambda: broad(*range(100), Batch()),
    "asynchronous": lambda: asyncio.run(asynchronous()),
}
def play():
    return {name: call() for name, call in CALLS.items()}
'''
ALWAYS = {"generator": True, "generator with *args": True, "started": (False, True), "asynchronous": [True] * 10}
"""Held by the original's frame alone, on every Python."""


@pytest.mark.parametrize(
    "options",
    [{}, {"role": "trajectory"}, {"role": "llm"}, {"mode": "count"}, {"facts": {"c": ("c",)}}],
    ids=["span", "trajectory", "llm", "count", "path"],
)
def test_arguments_are_freed_when_the_original_releases_them(host: Host, options: dict[str, object]) -> None:
    bare = host.load("bare_batches", SOURCE).play()
    host.watch(Target("batches.**", ("batches.**",), **options))
    traced = host.load("batches", SOURCE).play()
    assert traced == bare
    assert traced.items() >= ALWAYS.items()
    if sys.version_info >= (3, 11):
        assert traced["plain"] and traced["*args"] and traced["**kwargs"] and traced["self"]
    assert options.get("mode") == "count" or len(host.opened()) >= len(bare)


STEPS = """
import numpy
def update(batch):
    half = batch.astype(numpy.float32)
    del batch
    gradients = numpy.ones(2_000_000, dtype=numpy.float32)
    return float(half[0] + gradients[0])
def grow(array):
    try:
        array.resize(8)
    except ValueError:
        return "shared"
    return array.size
def own(*args, **kwargs):
    import inspect
    return inspect.getargvalues(inspect.currentframe())[:3]
"""


def test_an_array_is_freed_and_grown_in_place(host: Host) -> None:
    def measured(steps: object) -> tuple[float, object]:
        tracemalloc.start()
        steps.update(numpy.ones(1_000_000))  # type: ignore[attr-defined]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, steps.grow(numpy.zeros(4))  # type: ignore[attr-defined]

    bare = host.load("bare_steps", STEPS)
    host.watch("steps.**")
    steps = host.load("steps", STEPS)
    peak, size = measured(bare)
    traced_peak, traced_size = measured(steps)
    assert traced_size == size
    assert traced_peak < peak * 1.1
    assert steps.own(1, k=2) == bare.own(1, k=2), "a function sees its own frame as it is"
    assert len(host.opened()) == 3


def test_a_function_with_any_parameters_pickles_by_value_into_a_process_without_autotrace(
    host: Host, tmp_path: Path
) -> None:
    import cloudpickle

    host.watch("batches.**")
    module = host.load("batches", SOURCE)
    cloudpickle.register_pickle_by_value(module)
    try:
        play = cloudpickle.dumps(module.play)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    (tmp_path / "play").write_bytes(play)
    program = "import sys; sys.modules['autotrace'] = None; import pickle; print(pickle.load(open('play', 'rb'))())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert eval(done.stdout) == module.play()
