"""What the shipper's process does for itself: its log, its garbage collection, a look at the run's first process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import time
from collections.abc import Set
from pathlib import Path
from typing import NoReturn

from autotrace.config import environment as env
from autotrace.run import files, layout


def begin(run_folder: Path) -> None:
    """Prepare this process to be a shipper: nothing here is traced, and a signal that a terminal sends to all of its
    processes does not end the shipper."""
    os.environ[env.AUTOTRACE] = "0"
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    put_off_garbage()
    give_memory_back()
    log_to_file(run_folder)


def leave(code: int) -> NoReturn:
    """End the process. Not ``sys.exit``: a thread of a backend's library must not keep a process alive that has
    delivered everything."""
    logging.shutdown()
    os._exit(code)


def log_to_file(run_folder: Path) -> None:
    """From now on this process logs there, and nowhere else."""
    path = run_folder / layout.SHIPPER_LOG
    files.ensure(path)
    logging.basicConfig(
        filename=path, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("autotrace").setLevel(logging.INFO)  # of a backend's library only what went wrong


BACKSTOP = 500_000
"""Objects after which garbage is collected all the same. A trajectory is thousands of objects and no cycles, so looking
for cycles whenever some objects have been made takes up to a twentieth of the time: it is done by the clock."""
COLLECT_EVERY = 20.0
"""Seconds between two times."""

_M_MMAP_THRESHOLD, LARGE = -3, 1 << 20
"""glibc's number, and bytes from which on a piece of memory is the system's again once it is freed. By itself glibc
takes more and more to be small, and pyarrow's own memory pools keep what they have had."""


def give_memory_back() -> None:
    """From now on what is freed is the host's again, a backlog's tables above all. Called before pyarrow is there."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)


_last = time.monotonic()


def put_off_garbage() -> None:
    """From now on only ``BACKSTOP`` objects are a reason to collect."""
    gc.set_threshold(BACKSTOP, 20, 20)


def collect_garbage() -> None:
    """Collect, unless that was done a moment ago."""
    global _last
    if (now := time.monotonic()) - _last > COLLECT_EVERY:
        gc.collect()
        _last = now


SHELLS_DIE = 1.0
"""Seconds within which the shells of a command end after a SIGTERM."""


class MainProcess:
    """Watches process ``pid`` of machine ``host``; on another machine it counts as gone."""

    def __init__(self, pid: int, host: str) -> None:
        self._pid = pid
        self._started = _start_time(pid) if host == os.uname().nodename and pid > 0 else ""
        self._gone_at: float | None = None

    def gone_for(self) -> float:
        """Seconds since it was first seen gone; 0.0 while it lives."""
        if self._gone_at is None and (not self._started or _start_time(self._pid) != self._started):
            self._gone_at = time.monotonic()
        return 0.0 if self._gone_at is None else max(1e-9, time.monotonic() - self._gone_at)

    def terminate(self, recorded: Set[int]) -> None:
        """Ask it to end, as ``kill`` does. ``recorded``: process ids of traced processes on this machine. Those below
        a shell (``bash train.sh``) are asked too: it dies and passes nothing on."""
        parents = {pid: _parent(pid) for pid in self._below(recorded)}
        _terminate(self._pid)
        until = time.monotonic() + SHELLS_DIE
        while any(_parent(pid) == shell for pid, shell in parents.items()) and time.monotonic() < until:
            time.sleep(0.01)  # else a shell would go on with its next command
        for pid in parents:
            _terminate(pid)

    def _below(self, recorded: Set[int]) -> set[int]:
        """The traced processes that no signal reaches through those between; its own children get it from it."""
        found = set()
        for pid in recorded - {self._pid}:
            above = _parent(pid)
            while above > 1 and above != self._pid and _just_dies(above):
                above = _parent(above)
            if above == self._pid != _parent(pid):
                found.add(pid)
        return found


def _terminate(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)


def _start_time(pid: int) -> str:
    """Start of process ``pid`` in clock ticks (tells it from a later one of that number); "": dead or a zombie."""
    fields = _fields(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _parent(pid: int) -> int:
    """0: it is gone."""
    return int((_fields(pid) or ["", "0"])[1])


def _just_dies(pid: int) -> bool:
    """Of a SIGTERM: it handles none, so it passes none on."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return not int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def _fields(pid: int) -> list[str]:
    """Those of ``/proc/PID/stat``, from the state on; empty: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []
