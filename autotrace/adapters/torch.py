"""torch: nothing may be recorded inside a compiled region.

vLLM compiles with ``fullgraph=True``: a wrapper that read a clock or a context variable there would be a crash at
start-up. ``torch.compiler.is_compiling()`` costs 69 ns and is constant to the compiler, so the wrappers ask it first,
once torch is imported.
"""

from __future__ import annotations

import importlib

from autotrace.record import calls, faults


def install() -> None:
    """Tell the recorder how to ask. Called once, right after ``torch`` was imported."""
    try:
        torch = importlib.import_module("torch")
        compiler = getattr(torch, "compiler", None)
        calls.compiling = getattr(compiler, "is_compiling", None)  # torch >= 2.3; older ones have no such question
    except Exception as error:
        faults.failed("torch", error)
