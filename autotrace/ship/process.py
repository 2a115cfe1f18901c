"""Set up the shipper's process: its log and garbage collection, and watch the run's first process and its terminal."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Set
from pathlib import Path
from typing import NoReturn

from autotrace.config import environment as env
from autotrace.run import files, layout
from autotrace.sinks.own_keys import without_own_keys


def begin(run_folder: Path) -> None:
    """Prepare this process to be a shipper: nothing here is traced, and a terminal's signal to all of its processes
    does not end the shipper."""
    os.environ[env.AUTOTRACE] = "0"
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    put_off_garbage()
    give_memory_back()
    log_to_file(run_folder)


def leave(code: int) -> NoReturn:
    """End the process. Not ``sys.exit``: a thread of a backend's library must not keep the process alive after
    delivery."""
    logging.shutdown()
    os._exit(code)


class _WithoutCredentials(logging.Formatter):
    """Masks credentials in lines and stacks: an error of a backend's library may quote an address."""

    def format(self, record: logging.LogRecord) -> str:
        return without_own_keys(super().format(record))


def _log_uncaught(_: type[BaseException], error: BaseException | None, *__: object) -> None:
    """Log an error that ends a thread: Python itself writes the error to stderr, which is the log file, too."""
    logging.critical("unexpected error", exc_info=error)


def log_to_file(run_folder: Path) -> None:
    """Send this process's log to the shipper's log file, and nowhere else."""
    path = run_folder / layout.SHIPPER_LOG
    files.ensure(path)
    handler = logging.FileHandler(path)
    handler.setFormatter(_WithoutCredentials("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda thread: _log_uncaught(thread.exc_type, thread.exc_value)
    logging.getLogger("autotrace").setLevel(logging.INFO)  # a backend's library logs only errors


BACKSTOP = 500_000
"""Collect garbage by count only after so many objects. A trajectory is thousands of objects without cycles, so a search
for cycles after every few objects takes up to a twentieth of the time. The clock decides instead."""
COLLECT_EVERY = 20.0
"""Wait so many seconds between two collections."""

_M_MMAP_THRESHOLD, LARGE = -3, 1 << 20
"""Name glibc's option, and return freed blocks above so many bytes to the system. Without the option glibc raises its
limit more and more, and pyarrow's own memory pools keep freed memory."""


def give_memory_back() -> None:
    """Return freed memory to the host, above all the tables of a backlog. Call before pyarrow is imported."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)


_last = time.monotonic()


def put_off_garbage() -> None:
    """Collect garbage by count only after ``BACKSTOP`` objects."""
    gc.set_threshold(BACKSTOP, 20, 20)


def collect_garbage() -> None:
    """Collect, unless the last collection was a moment ago."""
    global _last
    if (now := time.monotonic()) - _last > COLLECT_EVERY:
        gc.collect()
        _last = now


SHELLS_DIE = 1.0
"""Wait so many seconds for the shells of a command to end after a SIGTERM."""


class MainProcess:
    """Watch process ``pid`` of machine ``host``; a process on another machine counts as gone."""

    def __init__(self, pid: int, host: str) -> None:
        self._pid = pid
        self._started = _start_time(pid) if host == os.uname().nodename and pid > 0 else ""
        self._gone_at: float | None = None

    def gone_for(self) -> float:
        """Return the seconds since the process was first seen gone; 0.0 while the process lives."""
        if self._gone_at is None and (not self._started or _start_time(self._pid) != self._started):
            self._gone_at = time.monotonic()
        return 0.0 if self._gone_at is None else max(1e-9, time.monotonic() - self._gone_at)

    def terminate(self, recorded: Set[int]) -> None:
        """Send SIGTERM to the process. ``recorded``: process ids of traced processes on this machine. Traced processes
        below a shell (``bash train.sh``) get SIGTERM too: the shell dies and passes no signal on."""
        parents = {pid: _parent(pid) for pid in self._below(recorded)}
        _terminate(self._pid)
        until = time.monotonic() + SHELLS_DIE
        while any(_parent(pid) == shell for pid, shell in parents.items()) and time.monotonic() < until:
            time.sleep(0.01)  # otherwise a shell would go on with the next command
        for pid in parents:
            _terminate(pid)

    def _below(self, recorded: Set[int]) -> set[int]:
        """Find the traced processes that no signal reaches through the processes between; direct children get the
        signal from the first process."""
        found = set()
        for pid in recorded - {self._pid}:
            above = _parent(pid)
            while above > 1 and above != self._pid and _just_dies(above):
                above = _parent(above)
            if above == self._pid != _parent(pid):
                found.add(pid)
        return found


class TerminalTitle:
    """Show a text in the title of the terminal that is the stderr of process ``pid``. No method waits or raises.

    The program owns the lines of its terminal, so a line of autotrace would damage the program's output. The terminal
    is opened anew: ``O_NONBLOCK`` on a descriptor of the program's would make the program's writes fail. The shipper's
    session has no terminal, so no signal stops a write.
    """

    def __init__(self, pid: int, is_first: bool) -> None:
        """``is_first``: this is the run's first shipper, so the terminal still has the title of before the run."""
        self._fd = _terminal_of(pid)
        self._text = ""
        self._rest = SAVE_TITLE if is_first else b""
        """Holds bytes of a sequence that was written in part, and come before anything else."""

    def show(self, text: str) -> None:
        """Show ``text`` without control characters, unless the terminal takes nothing now."""
        plain = "".join(filter(str.isprintable, text))[:LONGEST_TITLE]
        if plain != self._text and self._write(b"\x1b]2;%s\a" % plain.encode(errors="replace")):
            self._text = plain

    def close(self) -> None:
        """Restore the title and let the terminal go."""
        if self._fd >= 0:
            self._write(RESTORE_TITLE)
            os.close(self._fd)
        self._fd = -1

    def _write(self, sequence: bytes) -> bool:
        data = self._rest + sequence
        try:
            self._rest = data[os.write(self._fd, data) :]
        except OSError:  # the terminal is stopped, or gone
            return False
        return True


SAVE_TITLE, RESTORE_TITLE = b"\x1b[22;2t", b"\x1b]2;\a\x1b[23;2t"
"""Restoring begins with an empty title, for terminals that save none."""
LONGEST_TITLE = 200
_WITH_TITLE = ("xterm", "screen", "tmux", "rxvt", "alacritty", "foot", "ghostty", "konsole", "wezterm", "st-")
"""Lists the beginnings of ``$TERM`` of terminals that take a title; another terminal may print the sequence."""


def _terminal_of(pid: int) -> int:
    """Open the terminal that is the stderr of process ``pid``; -1: stderr is no terminal with a title, or a quiet run.

    The terminal of a container's first process (``docker run -t``) is a log, in which titles would disturb.
    """
    path, log = f"/proc/{pid}/fd/2", "/proc/1/fd/2"
    wanted = os.environ.get(env.QUIET) != "1" and os.environ.get("TERM", "").startswith(_WITH_TITLE)
    with contextlib.suppress(OSError):
        is_log = os.access(log, os.F_OK) and os.path.samefile(path, log)
        if wanted and not is_log and stat.S_ISCHR(os.stat(path).st_mode):
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            if os.isatty(fd):
                return fd
            os.close(fd)
    return -1


def _terminate(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)


def _start_time(pid: int) -> str:
    """Read the start of process ``pid`` in clock ticks (a later process of that number differs); "": dead or a
    zombie."""
    fields = _fields(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _parent(pid: int) -> int:
    """Return the parent's id; 0: the process is gone."""
    return int((_fields(pid) or ["", "0"])[1])


def _just_dies(pid: int) -> bool:
    """Return whether a SIGTERM just ends the process: a process without a handler passes no signal on."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return not int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def _fields(pid: int) -> list[str]:
    """Read the fields of ``/proc/PID/stat`` after the name, beginning with the state; empty: no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []
