"""Refuse functions that numba, triton or jax compile, because compiled code calls no wrapper.

numba reads the code of a function, which may be recorded already (functions of the program are recorded from their
``def``): numba gets the original. triton reads the source, which is the original's.

Read in numba 0.61 to 0.68, triton 3.9 and jax 0.10. Anything unexpected is left alone.
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
"""Maps the package of a compiled function's class to the compiler's name."""


def install() -> None:
    """Install the hooks right after a compiler was imported. Idempotent."""
    adapting.add(refusal=compiled)
    bytecode = sys.modules.get("numba.core.bytecode")
    reads = getattr(bytecode, "get_function_object", None)
    if type(reads) is FunctionType and not hasattr(reads, "__wrapped__"):
        setattr(bytecode, reads.__name__, _of_original(reads))


def compiled(value: Any, owner: Any, attribute: str) -> str | None:
    """Explain why the result of ``numba.njit``, ``triton.jit`` or ``jax.jit`` is not recorded."""
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
