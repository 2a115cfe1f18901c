"""Compute how far up the stack code looks, as far as the code's names and constants show. Imports nothing else of
autotrace."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType

_COUNTING = frozenset({"_getframe", "_getframemodulename"})
"""List functions that take the number of frames to go up."""
_ANYWHERE = frozenset({"f_back", "getouterframes", "extract_stack", "format_stack", "print_stack", "walk_stack"})
"""List names that lead to any frame above."""
_ANY = 1 << 30
LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
LOOKED_PAST = frozenset({
    "pydantic_ai.agent.abstract.AbstractAgent._infer_name", "pydantic_ai.agent.abstract.AbstractAgent.run_stream",
    "pydantic_ai._display.started_by_installed_package",
})  # fmt: skip
"""List functions that look up the stack, but for which an adapter removes autotrace's frames."""
_SKIPPED = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG"})


def reach(code: CodeType, inspects: bool) -> int:
    """Return how many frames above its own ``code`` looks at, as far as names and constants show. ``inspects``: the
    name ``stack`` is ``inspect.stack`` there."""
    names = code.co_names
    if not _ANYWHERE.isdisjoint(names) or ("stack" in names and (inspects or "inspect" in names)):
        return _ANY
    return 0 if _COUNTING.isdisjoint(names) else max(_counted(code), default=0)


def _counted(code: CodeType) -> Iterator[int]:
    """Yield the numbers that ``code`` passes to ``_COUNTING``; ``_ANY`` for a computed number."""
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
