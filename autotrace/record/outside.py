"""Calls that ask a model outside of any recorded call: of clients, those are not recorded (``inside`` of a list). Said
once a process and target, with the functions that a list could name instead."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

from autotrace.record.backlog import backlog
from autotrace.run.process import program
from autotrace.spool.records import CALLED_BY, OUTSIDE

MOST = 5
"""Functions that are named."""
MAX_DEPTH = 1_000
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_LIBRARIES = (_OWN, _STANDARD, f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_MAINS = ("__main__", "__mp_main__")


def met(probe: Any) -> None:
    """A call of ``probe``'s target begins outside of any recorded call."""
    probe.met_outside = True
    backlog.wake()
    backlog.report(probe.key, CALLED_BY.join(_callers()), OUTSIDE, "")


def _callers() -> list[str]:
    """The user's functions that are running in this thread, outermost first, as a list names them."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        name = None if _is_a_librarys(frame.f_code) else _name_of(frame)
        if name is not None and name not in names:
            names.append(name)
        frame = frame.f_back
    return names[::-1][:MOST]


def _is_a_librarys(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith("<") or any(part in file for part in _LIBRARIES)


def _name_of(frame: FrameType) -> str | None:
    """``module.Class.function``; None where a list cannot name it."""
    module = frame.f_globals.get("__name__")
    if module in _MAINS:
        kind, word = program(sys.orig_argv)
        file = os.path.basename(frame.f_code.co_filename)
        module = word if kind == "m" else file[:-3] if file.endswith(".py") else None
    name = getattr(frame.f_code, "co_qualname", None) or _qualname(frame)
    return f"{module}.{name}" if type(module) is str and module and "<" not in name else None


def _qualname(frame: FrameType) -> str:
    """What Python 3.10 does not tell: the class of a method is that of its first argument."""
    code = frame.f_code
    first = code.co_varnames[:1] if code.co_argcount else ()
    if first not in (("self",), ("cls",)):
        return code.co_name
    value = frame.f_locals.get(first[0])
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__qualname__}.{code.co_name}"
