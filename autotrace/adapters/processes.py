"""Write records before a process ends without Python's exit.

The endings are ``os._exit``, ``os.exec*``, and a signal from another process of the run. Whatever library starts a
process, the child ends in one of the ways (``multiprocessing``, ``multiprocess`` and ``billiard`` use ``os._exit``, and
end workers with ``os.kill``). A wrapper around each function therefore writes waiting records, or reports the process
that was ended on purpose.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from autotrace.patch import adapting
from autotrace.record import faults, flusher
from autotrace.record.backlog import backlog
from autotrace.record.errors import without_frame
from autotrace.record.frames import transparent
from autotrace.spool.records import ENDED, EXEC

_DEADLY = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT)
_SIGNALS = {int(number): number.name for number in _DEADLY}


def install() -> None:
    """Replace the functions. ``os.execvp`` and the other Python functions of ``os`` call ``execv`` and ``execve``."""
    _put("_exit", _leave)
    for name in ("execv", "execve"):
        _put(name, lambda *_: flusher.leave(EXEC))
    for name in ("kill", "killpg"):
        _put(name, _end)


def _put(name: str, before: Callable[..., None]) -> None:
    """Have ``before`` called with the arguments of ``os.NAME`` first."""
    original = getattr(os, name)

    @transparent
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            try:
                before(*args)
            except Exception as error:
                faults.failed(f"os.{name}", error)
            return original(*args, **kwargs)
        except BaseException as error:
            without_frame(error)
            raise

    function.__module__ = "os"  # where ``pickle`` looks for it
    adapting.put(os, name, function)


def _leave(*_: Any) -> None:
    with contextlib.suppress(BaseException):  # the host's exception too: the process ends in any case
        flusher.leave("exit")


def _end(pid: Any = 0, number: Any = 0, *_: Any) -> None:
    """Report that another process (or the group of that number) is ended on purpose."""
    name = _SIGNALS.get(int.__int__(number)) if isinstance(pid, int) and isinstance(number, int) else None
    if name is None:
        return
    ended = int.__int__(pid)
    if ended in (0, os.getpid(), os.getpgrp()):
        flusher.leave("")
    elif ended > 0:
        backlog.report("", str(ended), ENDED, name)
        backlog.wake()
