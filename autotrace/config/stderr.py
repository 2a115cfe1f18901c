"""The lines that autotrace itself writes to a person's terminal: launcher, exit of a run, a node that cannot deliver.

Never used on success in a traced process, except for the one line of the run's first process at its exit.
"""

from __future__ import annotations

import os
import stat

_stderr: tuple[int, int] | None = None


def remember() -> None:
    """Look what descriptor 2 is now. A daemon may close it and get its number for a file or socket of its own, where
    nothing of ours is written then."""
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
    """Whether descriptor 2 is what it was, or something that people redirect it to: a terminal, a pipe, a log."""
    import fcntl

    info = os.fstat(2)
    if (info.st_dev, info.st_ino) == _stderr:
        return True
    if stat.S_ISREG(info.st_mode):
        return bool(fcntl.fcntl(2, fcntl.F_GETFL) & os.O_APPEND)
    return stat.S_ISCHR(info.st_mode) or stat.S_ISFIFO(info.st_mode)


def say(text: str) -> None:
    """One line on stderr; never raises."""
    put((text + "\n").encode(errors="replace"))


def complain(message: str) -> None:
    """``say``, with our name in front."""
    say(f"autotrace: {message}")
