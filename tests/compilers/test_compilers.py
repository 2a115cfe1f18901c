"""Functions that a compiler reads (`make compilers`): it gets the original, and what it made of one is refused."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.conftest import Host, host
from tests.conformance.processes import run

__all__ = ["host"]

NUMBA = """
import math
import numba
import numpy as np

SCALE = 3.0

@numba.njit
def fast(x):
    return helper(x) * SCALE

def plain_helper(x):
    return math.sqrt(x) + 1.0

helper = numba.njit(plain_helper)

@numba.vectorize
def each(x):
    return x * 2

@numba.guvectorize(["void(float64[:], float64[:])"], "(n)->()")
def total(x, out):
    out[0] = x.sum()

@numba.njit(cache=True)
def cached(x, y=2):
    return x + y

@numba.njit(parallel=True)
def many(n):
    total = 0
    for i in numba.prange(n):
        total += i
    return total

@numba.cfunc("float64(float64)")
def called_from_c(x):
    return x + 1

def late(x):
    y = 0
    for i in range(x):
        y += i
    return y

def make(n):
    def inner(x):
        return x + n
    return inner

inner = make(4)

def several():
    compiled = numba.njit(late)
    again = numba.njit(inner)
    ufunc = numba.vectorize(plain_helper)
    return [
        fast(4.0), helper(9.0), each(np.arange(3)).tolist(), float(total(np.ones(4))), cached(1), many(10),
        called_from_c(1.0), compiled(4), again(1), ufunc(np.array([4.0])).tolist(), plain_helper(4.0), late(3),
        inner(2), compiled.inspect_llvm() != {}, len(compiled.signatures),
    ]
"""


@pytest.fixture
def numba() -> Any:
    return importlib.import_module("numba")


def test_numba_compiles_the_originals(host: Host, numba: Any) -> None:
    bare = host.load("bare_fast", NUMBA).several()
    host.watch(*(f"same_fast.{name}" for name in ("plain_helper", "late", "inner", "several")))
    module = host.load("same_fast", NUMBA)
    assert module.several() == bare
    assert host.opened() == ["several", "plain_helper", "late", "make.<locals>.inner"]
    reports = host.reports()
    assert "numba compiles it" in reports["same_fast:late"][1] and reports["same_fast:several"] == ("bound", "in place")


@pytest.mark.parametrize("name", ["fast", "helper", "each", "total", "cached", "many", "called_from_c"])
def test_what_numba_made_is_refused(host: Host, numba: Any, name: str) -> None:
    host.watch(f"same_fast.{name}")
    module = host.load("same_fast", NUMBA)
    state, reason = host.reports()[f"same_fast:{name}"]
    assert state == "refused" and reason.startswith("numba compiles it") and "name a function that calls it" in reason
    assert module.several() and not host.opened()


def test_compiled_before_and_after(host: Host, numba: Any) -> None:
    """What numba compiled stays as it is; what it compiles for another type later is the original again."""
    module = host.load("typed", "import numba\ndef f(x): return x + x\ng = numba.njit(f)\n")
    assert module.g(1) == 2
    host.watch("typed.f")
    assert module.g(1) == 2 and module.g(1.5) == 3.0 and module.g.py_func is module.f
    assert module.f("a") == "aa" and host.opened() == ["f"]
    again = pickle.loads(pickle.dumps(module.g))
    assert again(2) == 4


SCRIPT = """
import numba
@numba.njit(cache=True)
def fast(x):
    total = 0
    for i in range(x):
        total += i
    return total
def solve(x):
    return fast(x)
if __name__ == "__main__":
    print(solve(10), sum(fast.stats.cache_misses.values()))
"""


def test_a_program_whose_functions_are_compiled(tmp_path: Path, numba: Any) -> None:
    (tmp_path / "compiled_program.py").write_text(SCRIPT)
    spec = "- compiled_program.fast\n- compiled_program.solve\n"
    ran = run(tmp_path, spec, str(tmp_path / "compiled_program.py"))
    assert ran.stdout == "45 1\n" and [name for _, name in ran.calls()] == ["solve"]
    assert "numba compiles it" in ran.reports()["compiled_program:fast"][1]
    assert os.listdir(tmp_path / "__pycache__"), "numba's cache lies beside the program"


def test_without_the_compiler(host: Host, numba: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.config, "DISABLE_JIT", True)
    host.watch("slow.f")
    module = host.load("slow", "import numba\n@numba.njit\ndef f(x): return [x]\n")
    assert module.f(1) == [1] and host.opened() == ["f"]


TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = scaled(tl.load(x_ptr + i, mask=i < n))
    tl.store(x_ptr + i, x, mask=i < n)

@triton.jit
def scaled(x):
    return x * 2

@triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=["n"])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass

class Held:
    def __init__(self, kernel):
        self.kernel = kernel

@Held
@triton.jit
def held(x_ptr):
    pass

def later(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, n)

def compiled(kernel, signature, constants):
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    target = triton.backends.compiler.GPUTarget("cuda", 80, 32)
    return str(triton.compile(source, target=target).asm["ptx"])
"""


@pytest.fixture
def triton() -> Any:
    return importlib.import_module("triton")


@pytest.mark.parametrize("name", ["kernel", "scaled", "tuned", "held"])
def test_what_triton_made_is_refused(host: Host, triton: Any, name: str) -> None:
    host.watch(f"same_kernels.{name}")
    module = host.load("same_kernels", TRITON)
    state, reason = host.reports()[f"same_kernels:{name}"]
    assert state == "refused"
    assert name == "held" or (reason.startswith("triton compiles it") and "name a function that calls it" in reason)
    kernel = getattr(module, name)
    while not inspect.isfunction(kernel):
        kernel = kernel.kernel if name == "held" and not hasattr(kernel, "fn") else kernel.fn
    assert kernel.__code__.co_filename == module.__file__


def test_triton_compiles_the_source_of_the_original(host: Host, triton: Any) -> None:
    """Down to the machine's code, for which no GPU is needed."""
    bare = host.load("bare_kernels", TRITON)
    host.watch("same_kernels.later", "same_kernels.compiled")
    traced = host.load("same_kernels", TRITON)
    assert host.reports()["same_kernels:later"] == ("bound", "in place")
    signature = {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}

    def made(module: ModuleType, function: Any) -> str:
        text: str = module.compiled(triton.jit(function), signature, {"BLOCK": 16})
        assert "st.global" in text
        return text.partition(".section")[0].replace("same_kernels", "bare_kernels")

    assert made(traced, traced.later) == made(bare, bare.later)
    assert made(traced, traced.kernel.fn) == made(bare, bare.kernel.fn)


def test_what_jax_made_is_refused(host: Host) -> None:
    source = (
        "import functools, jax\n@jax.jit\ndef f(x): return x + 1\ndef g(x): return x * 2\n"
        "@functools.partial(jax.jit, static_argnums=0)\ndef h(n, x): return x * n\n"
        "def run(x): return float(f(x)), float(jax.jit(g)(x)), float(jax.grad(g)(x)), float(h(2, x))\n"
    )
    bare = host.load("bare_jitted", source)
    host.watch("jitted.f", "jitted.g", "jitted.h", "jitted.run")
    module = host.load("jitted", source)
    assert module.run(2.0) == bare.run(2.0)
    reports = host.reports()
    assert reports["jitted:f"][1].startswith("jax compiles it") and reports["jitted:h"][0] == "refused"
    assert host.opened() == ["run", "g", "g"], "g is called to be traced, and by grad"
