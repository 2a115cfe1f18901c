"""One shipper per run folder: the process that holds ``shipper.lock``."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from autotrace.run import files, layout

_PATIENCE = 0.5
"""Seconds to try: a process that only asks whether a shipper lives holds the lock for microseconds."""


class ShipperLock:
    """``with ShipperLock(run_folder) as lock:`` - then ``lock.held`` tells whether it is ours. Raises ``OSError`` where
    the folder cannot be written."""

    def __init__(self, run_folder: str | Path) -> None:
        self._path = os.path.join(run_folder, layout.SHIPPER_LOCK)
        self._fd = -1
        self.held = False

    def __enter__(self) -> ShipperLock:
        self._fd = files.shared(self._path)
        deadline = time.monotonic() + _PATIENCE
        while not self.held:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            else:
                self.held = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self.held = False
