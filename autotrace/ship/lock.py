"""One shipper per run folder: whoever holds ``shipper.lock``."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from autotrace.spool import layout

_PATIENCE = 0.5
"""Seconds to try: who only asks whether a shipper lives holds the lock for microseconds."""


class ShipperLock:
    """``with ShipperLock(run_folder) as lock:`` - then ``lock.held`` tells whether it is ours. Raises ``OSError`` where
    the folder cannot be written."""

    def __init__(self, run_folder: str | Path, patience: float = _PATIENCE) -> None:
        self._path = os.path.join(run_folder, layout.SHIPPER_LOCK)
        self._patience = patience
        self._fd = -1
        self.held = False

    def __enter__(self) -> ShipperLock:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, layout.FILE_MODE)
        deadline = time.monotonic() + self._patience
        while not self.held:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.held = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self.held = False
