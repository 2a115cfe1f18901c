"""Room on the stack for the frames of wrappers, which count against the recursion limit as those of the host do.
Without it, a function that calls itself would come half as deep.

The limit is raised for each ``ROOM`` recorded calls inside of one another, and stays: another thread may be deeper than
the host's own limit by then, and Python ends a process in which a thread is.
"""

from __future__ import annotations

import sys

from autotrace.record.context import ROOM, OpenCall, RetainingCall

MOST = 1_000
"""What the limit is raised by at most: it also protects the stack of C code."""

_hosts = _added = 0
"""The host's limit, and what was added to it."""


def make_room(call: OpenCall | None) -> int:
    """``ROOM`` calls are open inside of one another, ``call`` the innermost: raise the limit if that was not done for
    as many before. How many recorded calls are open."""
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
    if _added < frames <= MOST:
        _added = frames
        sys.setrecursionlimit(_hosts + _added)
    return frames
