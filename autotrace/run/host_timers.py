"""Stop the host's timers while the host's exit waits for autotrace; without autotrace the exit would come first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 1.0
"""Seconds added to each timer, for Python's final clean-up of autotrace."""


@contextmanager
def held() -> Iterator[None]:
    """Hold ``signal.alarm`` and ``signal.setitimer`` of the host, and let the timers go on afterwards.

    Each timer continues with the time that was left, plus ``GRACE``. Timers that were set before the program began
    count, too (``perl -e 'alarm 60; exec ...'``).
    """
    import signal

    kinds = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    timers = [(kind, *signal.setitimer(kind, 0)) for kind in kinds]
    try:
        yield
    finally:
        for kind, left, interval in timers:
            if left:
                signal.setitimer(kind, left + GRACE, interval)
