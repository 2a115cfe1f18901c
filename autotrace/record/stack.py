"""Make room on the stack for the frames of wrappers, which count against the recursion limit like frames of the host.
Without the room, a function that calls itself would come half as deep.

The limit is raised for each ``ROOM`` nested recorded calls, and stays. By then another thread may be deeper than the
host's own limit, and Python ends a process with a thread beyond the limit.
"""

from __future__ import annotations

import sys
from types import FrameType

from autotrace.record import template
from autotrace.record.context import ROOM, OpenCall, RetainingCall

MOST = 1_000
"""Limits the sum that is added to the recursion limit: the recursion limit also protects the stack of C code."""

_OURS = (*template.IN_PLACE, template.FILE)
_hosts = _added = 0
"""Hold the host's limit and the number that was added."""


def make_room(call: OpenCall | None) -> int:
    """Raise the limit for ``ROOM`` nested open calls, with ``call`` the innermost, unless the limit was raised for as
    many calls before. Return how many recorded calls are open on this stack."""
    global _hosts, _added
    frames = ROOM
    for _ in range(ROOM):
        if call is None or (type(call) is RetainingCall and call.frames):
            break
        call = call.above
    if type(call) is RetainingCall:
        frames += call.frames
    limit = sys.getrecursionlimit()
    if limit != _hosts + _added:  # the host has set another limit
        _hosts, _added = limit, 0
    if _added < frames:
        frames = min(frames, max(_on_stack(), 1))
    if max(_added, ROOM - 1) < frames <= MOST:
        _added = frames
        sys.setrecursionlimit(_hosts + _added)
    return frames


def _on_stack() -> int:
    """Count the frames of wrappers on this stack: open calls may be on the stacks of other tasks or threads, which
    started this task or thread."""
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        count += frame.f_code.co_filename.startswith(_OURS)
        frame = frame.f_back
    return count
