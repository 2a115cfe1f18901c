"""Timers of the host while its exit waits for us: without us it would be over before they go off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 1.0
"""Seconds that a timer gets in addition, for what Python has to take down of ours at the very end."""


@contextmanager
def held() -> Iterator[None]:
    """``signal.alarm`` and ``signal.setitimer`` of the host stand still, and go on afterwards with the time they had
    left and ``GRACE``. Also those that were set before the program began (``perl -e 'alarm 60; exec ...'``)."""
    import signal

    kinds = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    timers = [(kind, *signal.setitimer(kind, 0)) for kind in kinds]
    try:
        yield
    finally:
        for kind, left, interval in timers:
            if left:
                signal.setitimer(kind, left + GRACE, interval)
