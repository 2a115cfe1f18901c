"""How many processes deliver where ``--shippers`` was not given: the shipper alone, and two delivery processes while
a backend that can be reached falls behind and a core is idle.
"""

from __future__ import annotations

import os
import time

from autotrace.run.status import Status

IDLE_CORES = 1.0
"""So many must be idle, over ``LOOK_EVERY``, to use one more."""
LOOK_EVERY = 5.0
"""Seconds."""
CALM = 60.0
"""Seconds without a backlog after which the shipper delivers alone again."""
MORE = 2


class Scaling:
    """Decides from the latest status."""

    def __init__(self) -> None:
        self._count = 1
        self._looked = time.monotonic()
        self._idle = _idle_seconds()
        self._backlog_at = 0.0

    def wanted(self, status: Status) -> int:
        """How many delivery processes there should be; 1: none beside the shipper."""
        now = time.monotonic()
        if status.pending:
            self._backlog_at = now
        if self._count > 1 and now - self._backlog_at > CALM:
            self._count = 1
        if now - self._looked < LOOK_EVERY:
            return self._count
        idle = _idle_seconds()
        cores = (idle - self._idle) / (now - self._looked)
        self._looked, self._idle = now, idle
        behind = any(backend.behind for backend in status.backends.values())
        if behind and len(os.sched_getaffinity(0)) > 1 and cores >= IDLE_CORES:
            self._count = MORE
        return self._count


def _idle_seconds() -> float:
    """Seconds of all cores without work since the system was started; 0 where it does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
