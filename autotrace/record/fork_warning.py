"""From Python 3.12 ``os.fork`` warns that a process has several threads. Where the only other one is ours, the host
would not be warned without us, and the child has nothing to fear: it takes over no lock of ours (``flusher.child``).

So the warning is ignored while such a fork is under way. Python 3.12 issues it before the callbacks of
``os.register_at_fork``, 3.13 after them, when none of our code runs any more on that thread; what ignores it is taken
away again by the flusher's thread, which does not run before the fork is over.
"""

from __future__ import annotations

import _warnings
import os
import re
import sys
from _thread import get_native_id
from typing import Any

from autotrace.record import faults, own_thread

_IGNORED = ("ignore", re.compile(r"This process \(pid=\d+\) is multi-threaded"), DeprecationWarning, None, 0)
_inserted: list[list[Any]] = []
"""The list of filters that has it while a fork is under way: the host may exchange its list at any time
(``warnings.catch_warnings``)."""
_over: list[list[Any]] = []
"""Those that have it still, though the fork is over."""


def before() -> None:
    """A fork begins on the calling thread."""
    try:
        settle()
        if own_thread.alive and _alone():
            # not by ``warnings.simplefilter``, which has all warnings shown again that were shown once
            filters = getattr(sys.modules.get("warnings", _warnings), "filters", None)
            if type(filters) is list:
                _inserted.append(filters)
                filters.insert(0, _IGNORED)
    except Exception as error:
        faults.failed("fork", error)


def _alone() -> bool:
    """Whether the process has no threads but the calling one and ours."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return False
    return own_thread.alive.issuperset(set(map(int, threads)) - {get_native_id()})


def after_in_parent() -> None:
    """The fork is over in the parent, but for the warning."""
    _over.extend(_inserted)
    _inserted.clear()


def after_in_child() -> None:
    """Of what the parent did for its fork nothing is left in the child, and none of its threads."""
    own_thread.alive.clear()
    own_thread.started.clear()
    after_in_parent()
    settle()


def settle() -> None:
    """Take away what is not needed any more. Called by the flusher's thread now and then."""
    while _over:
        try:
            _over.pop().remove(_IGNORED)
        except (IndexError, ValueError):  # another thread was faster, or the host
            continue
