"""Arguments by name, from the code object alone: ``inspect.signature`` costs 8 us a call, this costs a zip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotrace.record.fields import ABSENT

_VARARGS, _VARKEYWORDS = 0x04, 0x08


class Binder:
    """Names of one function's parameters.

    ``names`` are its positional parameters in order, ``method`` tells whether the first is ``self`` or ``cls``; members of
    ``**kwargs`` are known under their own names. ``takes``: whether the argument of that name is captured.

    A wrapper has its original's parameters and so passes defaults on. An argument that is its default is not captured,
    and in paths it is absent if it is None.
    """

    __slots__ = ("code", "count", "defaults", "method", "names", "nones", "rest", "taken")

    def __init__(self, function: Callable[..., Any], takes: Callable[[str], bool]) -> None:
        code = getattr(function, "__code__", None)
        self.code = code
        function, code = _behind_decorators(function, code)
        """Kept so that ``id(code)`` stays taken."""
        if code is None:
            self.names: tuple[str, ...] = ()
            self.rest = "args"
        else:
            count = code.co_argcount
            self.names = code.co_varnames[:count]
            last = count + code.co_kwonlyargcount
            self.rest = code.co_varnames[last] if code.co_flags & _VARARGS else ""
        self.count = len(self.names)
        self.method = bool(self.names) and self.names[0] in ("self", "cls")
        given = getattr(function, "__defaults__", None) or ()
        self.defaults: dict[str, Any] = {
            **dict(zip(self.names[self.count - len(given) :], given, strict=False)),
            **(getattr(function, "__kwdefaults__", None) or {}),
        }
        self.nones = tuple(name for name, value in self.defaults.items() if value is None)
        self.taken = tuple(
            (place, name, self.defaults.get(name, ABSENT))
            for place, name in enumerate(self.names)
            if takes(name) and not (self.method and place == 0)
        )
        """Positional parameters to be captured, with their defaults."""

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """``{name: value}`` of what was passed. Wrong calls bind as far as they go."""
        known = dict(zip(self.names, args))  # noqa: B905 - too many or too few is the callee's error to raise
        if len(args) > len(self.names) and self.rest:
            known[self.rest] = args[len(self.names) :]
        if kwargs:
            known.update(kwargs)
        for name in self.nones:
            if known.get(name, ABSENT) is None:
                del known[name]
        return known


def _behind_decorators(function: Any, code: Any) -> tuple[Any, Any]:
    """The function whose names count: a decorator that takes ``*args, **kwargs`` passes on what it gets (veRL's
    ``rollout_trace_op``, ``tqbridge``), so the names are those of ``__wrapped__``."""
    for _ in range(16):
        inner = getattr(function, "__wrapped__", None)
        if inner is None or code is None or not (code.co_flags & _VARARGS and code.co_flags & _VARKEYWORDS):
            break
        function, code = inner, getattr(inner, "__code__", None)
    return function, code
