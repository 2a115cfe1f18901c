"""Check whether delivery keeps up with the run, over the last minute.

A backend without any delivery is still starting: the backend imports its library, or connects. The backlog of the start
does not count, and a burst that the backend works off does not count either. One sentence reports a backend that does
not keep up: in ``status.json``, from there in ``autotrace status`` and ``autotrace ls``, and in ``shipper.log``.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from autotrace.run.status import BackendStatus, Status

_log = logging.getLogger("autotrace.ship")

WINDOW = 60.0
"""Compute rates over so many seconds."""
SHORTEST = 20.0
"""Report nothing before so many seconds of samples."""
KEEPS_UP = 0.9
"""Set the share of the run's rate at which a backend still keeps up."""
BACKLOG = 15.0
"""Report a backlog only if the backlog would last so many seconds at the rate of the run."""
AGAIN = 600.0
"""Wait so many seconds between two log lines about a backend."""


class Sample(NamedTuple):
    """Hold the counts at a moment. Unread bytes count as the traces of the bytes."""

    at: float
    """Store the time in seconds of the monotonic clock."""
    made: float
    """Count the traces for this backend so far."""
    taken: int
    """Count the traces that the backend has taken so far."""

    @property
    def waiting(self) -> float:
        """Count the traces that the backend has not taken yet."""
        return self.made - self.taken


class Pace:
    """Watch the pace of a run: ``look`` gets each new status and completes the status."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        """List samples since the backend took its first trace."""
        self._taken_before: dict[str, int] = {}
        """Count the traces that each backend had taken at the first look."""
        self._logged: dict[str, float] = {}

    def look(self, status: Status, now: float | None = None) -> None:
        """Fill ``behind`` of each backend. ``now``: monotonic seconds."""
        now = time.monotonic() if now is None else now
        bytes_a_trace = status.read_bytes / max(1, status.traces + status.open)
        unread = status.unread_bytes / max(1.0, bytes_a_trace)
        for name, backend in status.backends.items():
            taken = backend.delivered + backend.rejected_count + backend.over_budget
            if taken == self._taken_before.setdefault(name, taken):
                continue
            samples = self._samples.setdefault(name, deque())
            samples.append(Sample(now, taken + backend.pending + unread, taken))
            while now - samples[0].at > WINDOW:
                samples.popleft()
            if backend.state == "ok" and status.state == "running":  # a backend that fails says so
                backend.behind = _behind(backend, samples)
            if backend.behind and now - self._logged.get(name, -AGAIN) >= AGAIN:
                self._logged[name] = now
                _log.warning("%s", backend.behind)


def _behind(backend: BackendStatus, samples: Sequence[Sample]) -> str | None:
    first, middle, last = samples[0], samples[len(samples) // 2], samples[-1]
    seconds = last.at - first.at
    if seconds < SHORTEST:
        return None
    rate_in = max(0.0, (last.made - first.made) / seconds)
    rate_out = max(0.0, (last.taken - first.taken) / seconds)
    late = rate_out < KEEPS_UP * rate_in and last.waiting > BACKLOG * rate_in
    if not late or not 1 <= middle.waiting <= last.waiting - 1:
        return None
    return (
        f"{backend.name} does not keep up: the run makes {rate_in:.3g} traces a second, {backend.name} takes "
        f"{rate_out:.3g}, {rate_in - rate_out:.3g} a second wait in the run folder (the run does not); what helps: "
        f"a part of the run (--sample-rate {max(0.01, rate_out / rate_in):.2f}, --keep), or another backend (--backend)"
    )


def warnings(status: Status) -> list[str]:
    """List the sentences about backends that do not keep up."""
    return [backend.behind for backend in status.backends.values() if backend.behind]
