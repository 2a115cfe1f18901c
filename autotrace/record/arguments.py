"""Bind arguments to names from the code object alone: ``inspect.signature`` costs 8 us a call. The caller's thread only
copies the arguments; the flusher puts the names to the copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.record.fields import ABSENT
from autotrace.record.pickled import captured
from autotrace.record.snapshot import Limits, snapshot

_VARARGS, _VARKEYWORDS = 0x04, 0x08
NOT_CAPTURED: Any = object()
_UNDECLARED: Any = object()


described: WeakKeyDictionary[FunctionType, Callable[..., Any]] = WeakKeyDictionary()
"""Map a function that a context manager was built from to the function whose name and parameters are recorded instead.
"""


class Signature:
    """Describes one function of a target: the function's name, the parameters, and the parameters that are captured.

    ``names`` lists the positional parameters in order. ``method`` tells whether the first parameter is ``self`` or
    ``cls``. Members of ``**kwargs`` have their own names. ``takes`` tells whether the argument of a name is captured;
    ``whole`` tells whether every argument is captured.

    A wrapper has the parameters of the original and so passes defaults on. An argument that is the parameter's default
    is not captured. In paths, a default of None is absent.
    """

    __slots__ = (
        "__weakref__", "captured", "captured_defaults", "count", "declared", "defaults", "identity", "method",
        "module", "name", "names", "nones", "positions", "reads_name", "rest", "start", "takes", "unwatched", "whole",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], takes: Callable[[str], bool], whole: bool) -> None:
        self.identity = id(function)
        if type(function) is FunctionType:
            function = described.get(function, function)
        self.name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self.module = getattr(function, "__module__", None) or ""
        code = _behind_decorators(function)
        if code is None:
            self.names: tuple[str, ...] = ()
            self.rest = "args"
        else:
            self.names = code.co_varnames[: code.co_argcount]
            last = code.co_argcount + code.co_kwonlyargcount
            takes_more = getattr(getattr(function, "__code__", code), "co_flags", 0) & _VARARGS  # a decorator may
            self.rest = code.co_varnames[last] if code.co_flags & _VARARGS else "args" if takes_more else ""
        self.count = len(self.names)
        self.method = bool(self.names) and self.names[0] in ("self", "cls")
        self.start = int(self.method)
        self.reads_name = False
        """Tells whether the call takes the name of the object that the method is called on."""
        self.unwatched = False  # the functions that this function calls still have to be watched
        given = getattr(function, "__defaults__", None) or ()
        self.defaults: dict[str, Any] = {
            **dict(zip(self.names[self.count - len(given) :], given, strict=False)),
            **(getattr(function, "__kwdefaults__", None) or {}),
        }
        self.nones = tuple(name for name, value in self.defaults.items() if value is None)
        self.takes = takes
        self.positions = tuple(
            position for position, name in enumerate(self.names) if takes(name) and not (self.method and position == 0)
        )
        """Lists the indexes of the positional arguments that are captured."""
        self.captured = tuple(self.names[position] for position in self.positions)
        """Lists the names of the captured positional arguments."""
        self.captured_defaults = tuple(self.defaults.get(name, ABSENT) for name in self.captured)
        """Lists the defaults of the captured positional arguments; ``ABSENT`` where a parameter has no default."""
        declared = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.declared = {name: self.defaults.get(name, ABSENT) if takes(name) else NOT_CAPTURED for name in declared}
        """Map each parameter that can be passed by name to the parameter's default: ``ABSENT`` for a parameter without
        a default, ``NOT_CAPTURED`` for a parameter that is not captured."""
        self.whole = whole and len(self.positions) == self.count - self.start

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return ``{name: value}`` of the passed arguments. A wrong call is bound as far as possible."""
        arguments = dict(zip(self.names, args))  # noqa: B905 - too many or too few is the callee's error to raise
        if len(args) > len(self.names) and self.rest:
            arguments[self.rest] = args[len(self.names) :]
        if kwargs:
            arguments.update(kwargs)
        for name in self.nones:
            if arguments.get(name, ABSENT) is None:
                del arguments[name]
        if self.method and args:
            arguments["self"] = args[0]
        return arguments

    def positional(self, args: tuple[Any, ...], limits: Limits) -> Sequence[Any]:
        """Copy the captured positional arguments, for ``named``."""
        passed = len(args)
        if not self.positions and passed <= self.count:
            return ()
        copies = [
            default if args[position] is default else captured(args[position], limits)
            for position, default in zip(self.positions, self.captured_defaults)  # noqa: B905 - made together
            if position < passed
        ]
        if passed > self.count and self.rest and self.takes(self.rest):
            copies += [snapshot(value, limits) for value in args[self.count :]]
        return copies

    def keywords(self, kwargs: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Copy the captured arguments that were passed by name."""
        copies = {}
        declared, takes = self.declared, self.takes
        for name, value in kwargs.items():
            default = declared.get(name, _UNDECLARED)
            if default is not value and default is not NOT_CAPTURED and (default is not _UNDECLARED or takes(name)):
                copies[name] = captured(value, limits)
        return copies

    def named(self, args: Sequence[Any], keywords: dict[str, Any] | None) -> dict[str, Any]:
        """Return the copies of ``positional`` and ``keywords`` by name."""
        inputs = {
            name: value
            for name, default, value in zip(  # noqa: B905 - a wrong call has too many
                self.captured, self.captured_defaults, args
            )
            if value is not default
        }
        if len(args) > len(self.captured) and self.rest:
            inputs[self.rest] = list(args[len(self.captured) :])
        if keywords:
            inputs.update(keywords)
        return inputs


def _behind_decorators(function: Any) -> Any:
    """Return the code object whose names count, or None for a callable without code. A decorator that takes ``*args,
    **kwargs`` passes all arguments on (veRL's ``rollout_trace_op``, ``tqbridge``), so the names of ``__wrapped__``
    count."""
    code = getattr(function, "__code__", None)
    for _ in range(16):
        function = getattr(function, "__wrapped__", None)
        if function is None or code is None or not (code.co_flags & _VARARGS and code.co_flags & _VARKEYWORDS):
            break
        code = getattr(function, "__code__", None)
    return code
