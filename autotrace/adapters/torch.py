"""Record nothing inside a compiled region of torch, and refuse to wrap a module's ``forward``.

vLLM compiles with ``fullgraph=True``: a wrapper that reads a clock or a context variable in a compiled region crashes
at start-up. ``torch.compiler.is_compiling()`` costs 69 ns and is constant to the compiler, so wrappers ask first. The
compiler takes only literals and codes as constants of a code (torch 2.13, ``ConstantVariable``), and wrappers hold
other constants. A wrapper's code therefore asks before touching such a constant, by a builtin that exists once
``torch._dynamo`` is imported.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

from autotrace.patch import adapting, wrapper
from autotrace.record import calls, faults, template


def install() -> None:
    """Tell the recorder how to ask. Called once, right after ``torch`` was imported."""
    adapting.add(refusal=forward)
    try:
        compiler = getattr(importlib.import_module("torch"), "compiler", None)
        calls.compiling = getattr(compiler, "is_compiling", None)  # torch >= 2.3; older releases have no such function
        if calls.compiling is not None:
            adapting.when_imported("torch._dynamo", _guard)
    except Exception as error:
        faults.failed("torch", error)


def _guard(_: ModuleType) -> None:
    adapting.put(builtins, template.COMPILING, calls.compiling)
    wrapper.guard()


def forward(value: Any, owner: Any, attribute: str) -> str | None:
    """Explain why ``nn.Module.forward`` is not wrapped."""
    torch_nn = sys.modules.get("torch.nn")
    if attribute != "forward" or torch_nn is None or not inspect.isclass(owner):
        return None
    if not issubclass(owner, torch_nn.Module):
        return None
    return "nn.Module.forward runs inside torch.compile and CUDA graphs: name the method that calls the model"
