"""numba, triton and jax compile what a Python function says, and compiled code calls no wrapper.

What they made of a function is refused. numba reads the code of a function, which may be recorded already (those of the
program are, from their ``def`` on): it gets the original. triton reads the source, which is the original's.

Read in numba 0.61 to 0.68, triton 3.9 and jax 0.10. What is not as expected is left alone.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import Any

from autotrace.patch import adapting, engine, wrapper
from autotrace.record import faults
from autotrace.record.object_fields import module_of

_COMPILERS = {"numba": "numba", "triton": "triton", "jaxlib": "jax"}
"""Where the class of a compiled function stands, and the compiler's name."""


def install() -> None:
    """Called right after one of them was imported. Idempotent."""
    adapting.add(refusal=compiled)
    bytecode = sys.modules.get("numba.core.bytecode")
    reads = getattr(bytecode, "get_function_object", None)
    if type(reads) is FunctionType and not hasattr(reads, "__wrapped__"):
        setattr(bytecode, reads.__name__, _of_original(reads))


def compiled(value: Any, owner: Any, attribute: str) -> str | None:
    """Why what ``numba.njit``, ``triton.jit`` or ``jax.jit`` made of a function is not recorded."""
    compiler = _COMPILERS.get(module_of(type(value)).partition(".")[0])
    return compiler and f"{compiler} compiles it, and compiled code has no wrapper: name a function that calls it"


def _of_original(reads: FunctionType) -> Any:
    @functools.wraps(reads)
    def get_function_object(obj: Any) -> Any:
        function = reads(obj)
        try:
            key = wrapper.key_of(function)
            if key is not None:
                reason = "numba compiles it: calls of the compiled code are not recorded; name a function that calls it"
                engine.report(key, f"{function.__module__}:{function.__qualname__}", "refused", reason)
                return wrapper.bare(function)
        except Exception as error:
            faults.failed("numba", error)
        return function

    return get_function_object
