"""Write autotrace's own lines to a person's terminal: launcher, exit of a run, a node that cannot deliver.

Traced processes never use this module on success, except for the exit line of the run's first process.
"""

from __future__ import annotations

import os
import stat

_stderr: tuple[int, int] | None = None


def remember() -> None:
    """Look up the file behind descriptor 2. A daemon may close stderr and get number 2 for its own file or socket;
    autotrace writes nothing there."""
    global _stderr
    try:
        info = os.fstat(2)
        _stderr = info.st_dev, info.st_ino
    except OSError:
        _stderr = None


def put(data: bytes) -> None:
    """Write ``data`` to stderr; never raises (stderr may be closed)."""
    try:
        if _stderr is None or _is_stderr():
            os.write(2, data)
    except OSError:
        return


def _is_stderr() -> bool:
    """Tell whether descriptor 2 is the remembered file, or a terminal, pipe or log that stderr is redirected to."""
    import fcntl

    info = os.fstat(2)
    if (info.st_dev, info.st_ino) == _stderr:
        return True
    if stat.S_ISREG(info.st_mode):
        return bool(fcntl.fcntl(2, fcntl.F_GETFL) & os.O_APPEND)
    return stat.S_ISCHR(info.st_mode) or stat.S_ISFIFO(info.st_mode)


def say(text: str) -> None:
    """Write one line to stderr; never raises."""
    put((text + "\n").encode(errors="replace"))


def complain(message: str) -> None:
    """Say ``message`` with autotrace's name in front."""
    say(f"autotrace: {message}")
