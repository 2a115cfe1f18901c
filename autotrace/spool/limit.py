"""How much a run's spool may hold, seen from one of its writers."""

from __future__ import annotations

import os
import time

from autotrace.run import layout

LOOK_EVERY = 1.0
"""Seconds between two looks at the folder (a few hundred files: about a millisecond)."""
BEGIN, END = 0.7, 0.5
"""Shares of the limit: beyond the first, what was taken goes until the second is reached."""
PRESSING = 0.5
"""Share of the limit from which on segments are kept small, so that the shipper can remove them one by one."""
PARTS = 64
LEAST = 64 * 1024
"""Bytes of a segment that is not worth ending."""


class SpoolLimit:
    """Whether the spool of a run has reached its size. The shipper makes room again: it removes what was delivered
    (``ship.retention``)."""

    def __init__(self, run_folder: str, limit: int) -> None:
        self._folder = layout.spool_of(run_folder)
        self._limit = limit
        self._looked = -LOOK_EVERY
        self._total = 0

    def look(self, wrote: int = 0) -> None:
        """Add the sizes up, once a second at most; in between, what this process ``wrote`` (bytes). Never raises."""
        if not self._limit:
            return
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            self._total += wrote
        else:
            self._looked, self._total = now, _size(self._folder)

    def reached(self, coming: int) -> bool:
        """Whether the spool is full, as of the last ``look`` and with ``coming`` bytes that wait to be written."""
        return bool(self._limit) and self._total + coming >= self._limit

    def ends(self, size: int) -> bool:
        """Whether a segment of ``size`` bytes should end, so that it can be removed."""
        return bool(self._limit) and self._total >= PRESSING * self._limit and size >= max(LEAST, self._limit // PARTS)


def _size(folder: str) -> int:
    """Bytes in the segments of ``folder``; 0 for a folder that is not there."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(layout.SEGMENT_SUFFIX):
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:  # a segment vanished while we looked: the shipper is making room
        pass
    return total
