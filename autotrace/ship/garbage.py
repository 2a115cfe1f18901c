"""Garbage collection of a process that delivers: trajectories are thousands of objects and no cycles, so looking for
cycles whenever some have been made takes up to a twentieth of its time. It is done by the clock.
"""

from __future__ import annotations

import gc
import time

BACKSTOP = 500_000
"""Objects after which it is done all the same."""
EVERY = 20.0
"""Seconds between two times."""

_last = time.monotonic()


def put_off() -> None:
    """From now on only ``BACKSTOP`` objects are a reason to collect."""
    gc.set_threshold(BACKSTOP, 20, 20)


def collect() -> None:
    """Collect, unless that was done a moment ago."""
    global _last
    if (now := time.monotonic()) - _last > EVERY:
        gc.collect()
        _last = now
