"""Note exceptions of watched functions in the recorded call around, which goes on as if nothing had happened.

A watched function (``template.WATCHED``) comes here only when the function raises. Example: ``score`` is recorded, and
catches a ``TimeoutError`` of ``judge``. The call of ``score`` then has the attribute ``swallowed``::

    [{"error": "TimeoutError", "message": "...", "at": "judge (rewards.py:12)", "caught": "score (rewards.py:31)"}]

A note is dropped if the call ends with that exception, or with an exception that came from the noted exception. A note
is also dropped if the same function is called again and returns: then another try went well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from autotrace.config.originals import time
from autotrace.record import context, errors, faults
from autotrace.record.context import OpenCall, Swallowed
from autotrace.record.object_fields import name_of

# Limit the notes of a call (a failure of the same kind at the same place is counted), and a chain of exceptions.
MOST, _CHAIN = 8, 16
_context, _cause = (BaseException.__dict__[name].__get__ for name in ("__context__", "__cause__"))


# Lets a watched function report that the function returned; set by ``patch.wrapper``.
arm: Callable[[FunctionType], object] = id


def raised(function: FunctionType, error: BaseException) -> None:
    """Note that a watched function with the code of ``function`` raised ``error``, which goes on."""
    kind = type(error)
    if not issubclass(kind, Exception) or issubclass(kind, (StopIteration, StopAsyncIteration)):
        return
    try:
        call = context.current_call()
        if call is not None and call.probe is not None and call.epoch == context.epoch and call.recorded:
            _note(call, function, error, sys._getframe(2))
            arm(function)
    except Exception as again:
        faults.failed("watch", again)


def _note(call: OpenCall, function: FunctionType, error: BaseException, caller: FrameType) -> None:
    own, file = (id(function), function.__qualname__), function.__code__.co_filename
    caught = _place(caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name)
    title, message, frames = errors.described(error)
    behind, notes = {*_chain(error)}, call.swallowed or []
    for note in notes:
        last = note.functions[-1][1].rpartition(".")[2]
        if note.identity == _identity(error) and any(frame[2] == last for frame in frames[1:]):
            note.functions.append(own)
            note.caught = caught
            return
    if errors.outcome_of(error) is None:
        at = _place(*[frame for frame in [(file, None, function.__name__), *frames] if frame[0] == file][-1])
        seconds = round((time.monotonic_ns() - call.at) / 1e9, 6)
        made = Swallowed((title, message, []), _identity(error), [own], at, caught, seconds)
        before = next((note for note in notes if note.error[0] == title and note.functions[0] == own), made)
        made.times += before.times * (before is not made)
        call.swallowed = [*(note for note in notes if note is not before and note.identity not in behind), made][-MOST:]


def _place(file: str, line: int | None, name: str) -> str:
    return f"{name} ({os.path.basename(file)}{f':{line}' if line else ''})"


def returned(function: FunctionType) -> None:
    """Drop the notes on ``function`` in this call, because the armed function returned: another try went well."""
    call = context.current_call()
    if call is not None and call.swallowed:
        own = id(function), function.__qualname__
        call.swallowed = [note for note in call.swallowed if own not in note.functions]


def passed_on(call: OpenCall, error: BaseException) -> None:
    """Drop the notes on ``error`` and on its causes, because ``call`` ends with ``error``: nothing of the chain was
    swallowed."""
    if call.swallowed:
        behind = {*_chain(error)}
        call.swallowed = [note for note in call.swallowed if note.identity not in behind]


def _identity(error: BaseException) -> tuple[int, str]:
    """Return (the address of ``error``, the type's name). Another exception may have the address later."""
    return id(error), name_of(type(error))


def _chain(error: BaseException) -> Iterator[tuple[int, str]]:
    """Yield the identity of ``error`` and of each cause of ``error``."""
    waiting: list[Any] = [error]
    for one in waiting:
        yield _identity(one)
        waiting += [other for other in (_cause(one), _context(one)) if other is not None and len(waiting) < _CHAIN]
