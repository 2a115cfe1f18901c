"""Whether delivery keeps up with the run: what is made and what each backend takes, over the last minute.

A backend that has taken nothing yet is still starting: it imports its library, or connects. What waits for that does
not count, nor does a burst that the backend works off. When it does not keep up, one sentence says so: in
``status.json``, from there in ``autotrace status`` and ``autotrace ls``, and in ``shipper.log``.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.run.status import BackendStatus, Status
from autotrace.ship.retention import spool_limit

_log = logging.getLogger("autotrace.ship")

WINDOW = 60.0
"""Seconds that rates are taken over."""
SHORTEST = 20.0
"""Seconds of them that there must be before anything is said."""
KEEPS_UP = 0.9
"""Share of what is made that a backend may take without counting as behind."""
BACKLOG = 15.0
"""Seconds that the backlog would last at the rate of the run, before it is worth a sentence."""
AGAIN = 600.0
"""Seconds between two lines of the log about one backend."""


@dataclass(frozen=True)
class Sample:
    """What there was at one moment. Unread bytes count as the traces that they will become."""

    at: float
    """Seconds of the monotonic clock."""
    made: float
    """Traces for this backend so far."""
    taken: int
    """By the backend, so far."""
    spool_bytes: int

    @property
    def waiting(self) -> float:
        """Traces that the backend has not taken yet."""
        return self.made - self.taken


class Pace:
    """Of one run: ``look`` is called with each new status and completes it."""

    def __init__(self, info: RunInfo, run_folder: Path) -> None:
        self._info = info
        self._run_folder = run_folder
        self._spool_limit = spool_limit(run_folder)
        self._samples: dict[str, deque[Sample]] = {}
        self._taken_before: dict[str, int] = {}
        """What each backend had taken when this was first asked."""
        self._logged: dict[str, float] = {}

    def look(self, status: Status, now: float | None = None) -> None:
        """Fill ``rate_in``, ``rate_out``, ``full_in`` and ``behind`` of each backend. ``now``: monotonic seconds."""
        now = time.monotonic() if now is None else now
        unread = status.unread_bytes / max(1.0, _bytes_a_trace(status))
        for name, backend in status.backends.items():
            samples = self._samples.setdefault(name, deque())
            made = backend.delivered + backend.rejected_count + backend.over_budget + backend.pending + unread
            taken = backend.delivered + backend.rejected_count + backend.over_budget
            samples.append(Sample(now, made, taken, status.spool_bytes))
            while now - samples[0].at > WINDOW:
                samples.popleft()
            if _rates(backend, samples):
                growth = max(0.0, (samples[-1].spool_bytes - samples[0].spool_bytes) / (now - samples[0].at))
                backend.full_in = self._room(status) / growth if growth else None
            before = self._taken_before.setdefault(name, taken)
            self._judge(backend, [sample for sample in samples if sample.taken > before], status)

    def _judge(self, backend: BackendStatus, samples: Sequence[Sample], status: Status) -> None:
        """``samples``: those since the backend took something."""
        if not _rates(backend, samples):
            return
        last, middle = samples[-1], samples[len(samples) // 2]
        late = backend.rate_out < KEEPS_UP * backend.rate_in and last.waiting > BACKLOG * backend.rate_in
        grows = 1 <= middle.waiting <= last.waiting - 1
        if backend.state != "ok" or status.state != "running" or not (late and grows):  # a backend that fails says so
            return
        backend.behind = sentence(backend, self._info, bool(self._spool_limit), status.shippers)
        if last.at - self._logged.get(backend.name, -AGAIN) >= AGAIN:
            self._logged[backend.name] = last.at
            _log.warning("%s", backend.behind)

    def _room(self, status: Status) -> float:
        """Bytes that may still be written."""
        if self._spool_limit:
            return max(0, self._spool_limit - status.spool_bytes)
        try:
            return shutil.disk_usage(self._run_folder).free
        except OSError:
            return 0.0


def _rates(backend: BackendStatus, samples: Sequence[Sample]) -> bool:
    """Fill ``rate_in`` and ``rate_out``; False: there are too few ``samples`` to say."""
    seconds = samples[-1].at - samples[0].at if samples else 0.0
    if seconds < SHORTEST:
        return False
    backend.rate_in = max(0.0, (samples[-1].made - samples[0].made) / seconds)
    backend.rate_out = max(0.0, (samples[-1].taken - samples[0].taken) / seconds)
    return True


def _bytes_a_trace(status: Status) -> float:
    """On average, of those that were read."""
    return status.read_bytes / max(1, status.traces + status.open)


def warnings(status: Status) -> list[str]:
    """The sentences about backends that do not keep up."""
    return [backend.behind for backend in status.backends.values() if backend.behind]


def sentence(backend: BackendStatus, info: RunInfo, limited: bool, shippers: int) -> str:
    """What a person is told, with what would help first."""
    left = max(0.0, backend.rate_in - backend.rate_out)
    full = ""
    if backend.full_in is not None:
        what = "--spool-limit is reached" if limited else "the disk of the run folder is full"
        full = f", and {what} in {duration(backend.full_in)} at this rate"
    return (
        f"{backend.name} does not keep up: the run makes {backend.rate_in:.3g} traces a second, {backend.name} takes "
        f"{backend.rate_out:.3g}, {left:.3g} a second wait in the run folder (the run does not){full}; what helps: "
        f"{', or '.join(_remedies(backend, info, shippers))}"
    )


def _remedies(backend: BackendStatus, info: RunInfo, shippers: int) -> list[str]:
    remedies = []
    place = backend.place or info.tracking_uri or ""
    if backend.name == "mlflow" and place.startswith("http"):
        remedies.append(
            "write into the server's database instead of through the server (--tracking-uri postgresql://...)"
        )
    elif info.step_budget is None and not place.startswith("sqlite"):  # one SQLite file has one writer
        remedies.append(f"more delivery processes (--shippers {max(2, 2 * shippers)})")
    share = backend.rate_out / backend.rate_in if backend.rate_in else 0.0
    remedies.append(f"record as many as arrive (--sample-rate {max(0.01, share):.2f})")
    if not info.keep:
        remedies.append("deliver only what is worth looking at (--keep errors,spread,random=0.1)")
    if backend.name != "jsonl":
        remedies.append("another backend (--backend jsonl)")
    return remedies


def duration(seconds: float) -> str:
    """``3 hours``."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
