"""Whether a function looks at its caller, judged by its bytecode; ``spec.callers`` judges the same by its source."""

from __future__ import annotations

from types import CodeType, FunctionType


def looks_at_caller(function: FunctionType) -> bool:
    """Whether ``function``, or a function of its module that it calls for that, asks who called it.

    veRL's ``@auto_await`` does, to decide whether to return a coroutine; with a wrapper in between ``await`` raises.
    """
    names = function.__code__.co_names
    if _reaches(function.__code__, 1):
        return True
    called = (function.__globals__.get(name) for name in names)
    return any(type(other) is FunctionType and _reaches(other.__code__, 2) for other in called)


def _reaches(code: CodeType, depth: int) -> bool:
    """Whether ``code`` looks at a frame ``depth`` or more above its own (as far as its names and constants show)."""
    names = frozenset(code.co_names)
    if "f_back" in names or not names.isdisjoint(("getouterframes", "_getframemodulename")):
        return True
    if "stack" in names and "inspect" in names:
        return True
    return "_getframe" in names and any(type(const) is int and const >= depth for const in code.co_consts)
