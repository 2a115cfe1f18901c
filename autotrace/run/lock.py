"""One shipper per run folder: the process that holds ``shipper.lock``.

A reader of the run (``autotrace ls``) holds it too while it brings the index up to date, and marks the file: a
shipper waits for a reader, however long it takes, and goes when there is another shipper.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from autotrace.run import files, layout

_PATIENCE = 0.5
"""Seconds to try: a process that only asks whether a shipper lives holds the lock for microseconds."""
_READER = b"r"


class ShipperLock:
    """``with ShipperLock(run_folder) as lock:`` - then ``lock.held`` tells whether it is ours. Raises ``OSError`` where
    the folder cannot be written. ``reading``: this is a reader, not a shipper."""

    def __init__(self, run_folder: str | Path, *, reading: bool = False) -> None:
        self._path = os.path.join(run_folder, layout.SHIPPER_LOCK)
        self._reading = reading
        self._fd = -1
        self.held = False

    def __enter__(self) -> ShipperLock:
        self._fd = files.shared(self._path)
        deadline = time.monotonic() + _PATIENCE
        while not self.held:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline and (self._reading or os.pread(self._fd, 1, 0) != _READER):
                    break
                time.sleep(0.02)
            else:
                self.held = True
                os.ftruncate(self._fd, 0)  # a reader that was killed left its mark
                os.pwrite(self._fd, _READER if self._reading else b"", 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self.held = False
