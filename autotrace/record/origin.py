"""Whose an exception is that arrives while code of ours runs: a failure of ours, or the host's.

A handler of the host's (``signal.alarm`` in reward code) may raise between any two instructions of the main thread, and
``PyThreadState_SetAsyncExc`` makes any thread raise: where we happen to be running, that passes through. All who catch
``Exception`` ask here, by way of ``faults.failed``.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal.getsignal`` makes an enum of each answer
import builtins
import opcode
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any

from autotrace.config.originals import thread
from autotrace.record.object_fields import members_of, module_of, mro_of
from autotrace.record.template import FILE, IN_PLACE

_HERE = str(Path(__file__).parent)
_OURS = frozenset(
    id(kind)
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind not in (Exception, TimeoutError, InterruptedError)
)
"""What statements of ours can raise: exactly one of Python's own types, except those that mean a timeout. A type of
the host's matches none, whatever it derives from. By ``id()``: a set would ask the class for its hash."""
_OF_ANYBODY = frozenset(map(id, (RuntimeError, ValueError, OSError)))
"""Of these, what programs set in another thread for want of a type of their own. It comes without arguments; where a
statement of ours fails, and where the interpreter or a library of ours raises them, there is a message. (The other
types are also what objects say in C that have no such attribute or item, without a word.)"""
_OUR_LIBRARIES = frozenset({"msgspec", "struct", "_struct", "_pickle"})
_RAISES = frozenset({opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]})

_of_thread = thread._local()
"""Not a set of numbers: that of a thread that ended is given to one of the host's."""


def own_thread() -> None:
    """The calling thread runs nothing of the host's: whatever is raised in it is ours."""
    _of_thread.own = True


def is_hosts(error: BaseException) -> bool:
    """Whether ``error``, just caught by the caller, was raised by the host into code of ours.

    It was if a signal handler is among its frames, or if no statement raised it (it was set from another thread) and
    its type is the host's. What is raised by a property, a hook or an iterator of the host's that we called is a
    failure of ours: we should not have been there.
    """
    if getattr(_of_thread, "own", False):
        return False
    if not issubclass(type(error), Exception):
        return True
    trace = error.__traceback__
    if trace is None:
        return False
    handlers = _handlers() if trace.tb_next is not None else frozenset()
    while trace.tb_next is not None:
        outer, trace = trace.tb_frame, trace.tb_next
        if trace.tb_frame.f_code in handlers or _is_signal_handler(trace.tb_frame, outer):
            return True
    kind = type(error)
    if (id(kind) in _OURS and id(kind) not in _OF_ANYBODY) or module_of(kind) in _OUR_LIBRARIES:
        return False
    if id(kind) in _OURS and _arguments(error):
        return False
    return not _is_raised_there(trace) and (_is_of_record(trace.tb_frame) or not _arguments(error))


def unread(error: Exception) -> bool:
    """An item could not be read, so it is not the final one. What is the host's is raised again."""
    if is_hosts(error):
        raise error
    return False


def _handlers() -> frozenset[CodeType]:
    """Code of the signal handlers that are installed: one may have dropped the frame that it was given."""
    return frozenset(filter(None, (_code_of(_signal.getsignal(number)) for number in range(1, _signal.NSIG))))


def _code_of(handler: Any) -> CodeType | None:
    """Code of a callable, found without asking it."""
    while (kind := type(handler)) is partial or kind is MethodType:
        handler = handler.func if kind is partial else handler.__func__
    if type(handler) is not FunctionType:
        handler = next((call for owner in mro_of(type(handler)) if (call := members_of(owner).get("__call__"))), None)
    return handler.__code__ if type(handler) is FunctionType else None


def _is_signal_handler(frame: FrameType, interrupted: FrameType) -> bool:
    """A handler is called with the frame it interrupts."""
    for value in frame.f_locals.values():
        if value is interrupted or (type(value) is tuple and any(item is interrupted for item in value)):
            return True
    return False


def _is_raised_there(trace: TracebackType) -> bool:
    """Whether a ``raise`` statement raised what was raised there. Before its first instruction a frame stands at a
    negative one (Python 3.10 raises there what another thread set), which is no place in its code."""
    return trace.tb_lasti >= 0 and trace.tb_frame.f_code.co_code[trace.tb_lasti] in _RAISES


def _is_of_record(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((_HERE, *IN_PLACE)) or name == FILE


def _arguments(error: BaseException) -> Any:
    return BaseException.__dict__["args"].__get__(error)
