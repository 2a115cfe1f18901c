"""How far up the stack code looks, as far as its names and constants show. Imports no more of autotrace."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType

_COUNTING = frozenset({"_getframe", "_getframemodulename"})
"""What takes the number of frames to go up."""
_ANYWHERE = frozenset({"f_back", "getouterframes", "extract_stack", "format_stack", "print_stack", "walk_stack"})
"""What leads to any frame above."""
_ANY = 1 << 30
LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
LOOKED_PAST = frozenset({
    "pydantic_ai.agent.abstract.AbstractAgent._infer_name", "pydantic_ai.agent.abstract.AbstractAgent.run_stream",
    "pydantic_ai._display.started_by_installed_package",
})  # fmt: skip
"""Functions that look up the stack, for which an adapter takes our frames away."""
_SKIPPED = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG"})


def reach(code: CodeType, inspects: bool) -> int:
    """How many frames above its own ``code`` looks at, as far as its names and constants show. ``inspects``: the name
    ``stack`` is ``inspect.stack`` there."""
    names = code.co_names
    if not _ANYWHERE.isdisjoint(names) or ("stack" in names and (inspects or "inspect" in names)):
        return _ANY
    return 0 if _COUNTING.isdisjoint(names) else max(_counted(code), default=0)


def _counted(code: CodeType) -> Iterator[int]:
    """What ``code`` passes to ``_COUNTING``; ``_ANY`` where that is computed."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _SKIPPED]
    for at, step in enumerate(steps):
        if step.opname != "LOAD_CONST" and step.argval in _COUNTING:
            first, second = steps[at + 1], steps[min(at + 2, len(steps) - 1)]
            if first.opname.startswith("CALL"):
                yield 0
            elif type(first.argval) is int and first.opname.startswith("LOAD_") and second.opname.startswith("CALL"):
                yield first.argval
            else:
                yield _ANY
