"""Room on the stack for the frames of wrappers, which count against the recursion limit as those of the host do.
Without it, a function that calls itself would come half as deep.

The limit is raised for each ``ROOM`` recorded calls inside of one another, and stays: another thread may be deeper than
the host's own limit by then, and Python ends a process in which a thread is.
"""

from __future__ import annotations

import sys
from types import FrameType

from autotrace.record import template
from autotrace.record.context import ROOM, OpenCall, RetainingCall

MOST = 1_000
"""What the limit is raised by at most: it also protects the stack of C code."""

_OURS = (*template.IN_PLACE, template.FILE)
_hosts = _added = 0
"""The host's limit, and what was added to it."""


def make_room(call: OpenCall | None) -> int:
    """``ROOM`` calls are open inside of one another, ``call`` the innermost: raise the limit if that was not done for
    as many before. Return how many recorded calls are open on this stack."""
    global _hosts, _added
    frames = ROOM
    for _ in range(ROOM):
        if call is None or (type(call) is RetainingCall and call.frames):
            break
        call = call.above
    if type(call) is RetainingCall:
        frames += call.frames
    limit = sys.getrecursionlimit()
    if limit != _hosts + _added:  # the host has set another one
        _hosts, _added = limit, 0
    if _added < frames:
        frames = min(frames, max(_on_stack(), 1))
    if max(_added, ROOM - 1) < frames <= MOST:
        _added = frames
        sys.setrecursionlimit(_hosts + _added)
    return frames


def _on_stack() -> int:
    """How many frames of wrappers this stack has: open calls may be on the stacks of other tasks or threads, which
    started this one."""
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_OURS)
        frame = frame.f_back
    return count
