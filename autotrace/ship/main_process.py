"""Whether the run's first process still lives."""

from __future__ import annotations

import os
import select
import time


class MainProcess:
    """Watches process ``pid`` of machine ``host``; on another machine it counts as gone."""

    def __init__(self, pid: int, host: str) -> None:
        self._pid = pid
        self._fd = -1
        self._started = ""
        self._gone_at: float | None = None
        if host != os.uname().nodename or pid <= 0:
            self._gone_at = time.monotonic()
            return
        self._started = _start_time(pid)
        if not self._started:
            self._gone_at = time.monotonic()
            return
        try:
            self._fd = os.pidfd_open(pid)
        except (OSError, AttributeError):  # an old kernel, a sandbox
            self._fd = -1

    def gone_for(self) -> float:
        """Seconds since it was first seen gone; 0.0 while it lives."""
        if self._gone_at is None and not self._lives():
            self._gone_at = time.monotonic()
        return 0.0 if self._gone_at is None else max(1e-9, time.monotonic() - self._gone_at)

    def _lives(self) -> bool:
        if self._fd >= 0:
            poll = select.poll()  # select.select fails for descriptors above 1023
            poll.register(self._fd, select.POLLIN)
            return not poll.poll(0)
        return _start_time(self._pid) == self._started

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _start_time(pid: int) -> str:
    """Start of process ``pid`` in clock ticks (tells it from a later one of that number); "": dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]
