"""Tell whether an exception that arrives while code of ours runs is a failure of ours, or the host's.

A handler of the host's (``signal.alarm`` in reward code) may raise between any two instructions of the main thread, and
``PyThreadState_SetAsyncExc`` makes any thread raise. Such an exception passes through our code. All code of ours that
catches ``Exception`` asks this module, by way of ``faults.failed``.
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
"""Holds the types that statements of ours can raise: exactly Python's own types, except types that mean a timeout. A
type of the host's matches no entry, not even a subclass of an entry. Held by ``id()``: a set would ask the class for
its hash."""
_OF_ANYBODY = frozenset(map(id, (RuntimeError, ValueError, OSError)))
"""Holds the types that programs set in another thread for want of a type of their own. Such an exception comes without
arguments. Where a statement of ours fails, and where the interpreter or a library of ours raises, there is a message.
(Objects in C also raise the other types of ``_OURS``, without a message, for an absent attribute or item.)"""
_OUR_LIBRARIES = frozenset({"msgspec", "struct", "_struct", "_pickle"})
_RAISES = frozenset({opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]})

_of_thread = thread._local()
"""Marks threads of ours. A set of numbers does not work: a thread of the host may get the number of an ended thread."""


def own_thread() -> None:
    """Mark the calling thread as a thread that runs nothing of the host's: every exception in the thread is ours."""
    _of_thread.own = True


def is_hosts(error: BaseException) -> bool:
    """Tells whether the host raised ``error``, which the caller just caught, into code of ours.

    The host raised ``error`` if a signal handler is among the frames, or if no statement raised ``error`` (another
    thread set the exception) and the type is the host's. An exception of a property, a hook or an iterator of the
    host's that we called is a failure of ours: our code should not have called host code.
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
    """Return False for an item that could not be read, so the item is not final. The host's exception is raised
    again."""
    if is_hosts(error):
        raise error
    return False


def _handlers() -> frozenset[CodeType]:
    """Return the code of the installed signal handlers: a handler may have dropped the frame that the handler was
    given."""
    return frozenset(filter(None, (_code_of(_signal.getsignal(number)) for number in range(1, _signal.NSIG))))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a callable without asking the callable."""
    while (kind := type(handler)) is partial or kind is MethodType:
        handler = handler.func if kind is partial else handler.__func__
    if type(handler) is not FunctionType:
        handler = next((call for owner in mro_of(type(handler)) if (call := members_of(owner).get("__call__"))), None)
    return handler.__code__ if type(handler) is FunctionType else None


def _is_signal_handler(frame: FrameType, interrupted: FrameType) -> bool:
    """Tells whether ``frame`` got ``interrupted`` as a value: a handler is called with the frame that the handler
    interrupts."""
    for value in frame.f_locals.values():
        if value is interrupted or (type(value) is tuple and any(item is interrupted for item in value)):
            return True
    return False


def _is_raised_there(trace: TracebackType) -> bool:
    """Tells whether a ``raise`` statement raised the exception at this place. Before the first instruction a frame has
    a negative position (Python 3.10 raises there an exception that another thread set), and a negative position is not
    a place in the code."""
    return trace.tb_lasti >= 0 and trace.tb_frame.f_code.co_code[trace.tb_lasti] in _RAISES


def _is_of_record(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((_HERE, *IN_PLACE)) or name == FILE


def _arguments(error: BaseException) -> Any:
    return BaseException.__dict__["args"].__get__(error)
