"""Examine the run that a process inherited in environment variables: whether the run goes on, and what remains after.

A shell, a terminal multiplexer or a daemon that was started inside a run keeps the run's variables after the run's end.
A program started from such a shell would write into a folder that nobody reads any more. Standard library only: traced
processes use this module.
"""

from __future__ import annotations

import os

from autotrace.config import environment as env
from autotrace.config.originals import time, wall_ns
from autotrace.run import layout

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes longer than everything else that starts with a process
    from collections.abc import Mapping

_CLOCKS = 60.0
"""Seconds by which the clocks of the machine and of the run folder's file system may differ."""


def is_over(environ: Mapping[str, str]) -> bool:
    """Tell whether the inherited run has certainly ended.

    The run has ended if this is the run's node, the first process is gone and no shipper holds the lock. The run has
    also ended if the first process asked for delivery and everything was delivered. The check takes a few system calls
    while the first process lives.
    """
    pid, _, host = environ.get(env.MAIN_PID, "").partition(":")
    folder = environ.get(env.RUN_FOLDER, "")
    if not pid.isdecimal() or not folder or host != os.uname().nodename:
        return False
    main_lives = _exists(int(pid)) and _is_first(int(pid), folder)
    asked = os.path.exists(os.path.join(folder, layout.DRAIN))
    if main_lives and not asked:
        return False
    from autotrace.run.drain import START_GRACE, read_status, shipper_alive

    status, written_ns = read_status(folder)
    delivered = status.get("state") == "done"
    if asked and delivered and written_ns >= _written_ns(os.path.join(folder, layout.DRAIN)):
        return True  # the shipper may not have let go of its lock yet, but reads nothing more
    alive = shipper_alive(folder)
    if alive or (alive is None and _age(os.path.join(folder, layout.RUN_JSON)) < START_GRACE):
        return False
    return not main_lives or delivered


def without_run(environ: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """Return the id of the run named in ``environ`` (None without a run), and ``environ`` without the run."""
    return environ.get(env.RUN_ID) or None, {name: value for name, value in environ.items() if name not in env.OF_A_RUN}


def after(earlier: str | None) -> str:
    """Return the words that the first line of a new run adds if variables of an ``earlier`` run were inherited."""
    return f"; the inherited run {earlier} is over or on another machine" if earlier else ""


def _written_ns(path: str) -> int:
    """Return when ``path`` was written (ns of the file system's clock); 0 if ``path`` is missing."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _age(path: str) -> float:
    """Return the seconds since ``path`` was written; 0 if ``path`` is missing.

    The file is missing in a container of the same host name, where a relay forwards the records.
    """
    written_ns = _written_ns(path)
    return (wall_ns() - written_ns) / 1e9 if written_ns else 0.0


def _is_first(pid: int, folder: str) -> bool:
    """Tell whether process ``pid`` is the run's first process.

    False for a zombie, and for a process that began after ``run.json`` was written: the number was used again.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        written = os.stat(os.path.join(folder, layout.RUN_JSON)).st_mtime
        booted = wall_ns() / 1e9 - time.clock_gettime(time.CLOCK_BOOTTIME)
        began = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux; another container's folder
        return True
    return fields[0] not in "ZX" and began < written + _CLOCKS


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
