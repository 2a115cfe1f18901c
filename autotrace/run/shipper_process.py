"""Starting the shipper: detached from everything, so that no Ctrl-C, closed terminal or killed parent reaches it. One
per run folder: the process that holds ``shipper.lock``.

A ``guard`` stands above it and starts it again when it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from autotrace.config import environment as env
from autotrace.config.installation import with_package
from autotrace.run import files, layout
from autotrace.run.process import python

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


NICENESS = 10
"""The cores belong to the training; at the end of the run, when delivery matters, they are idle."""

_MOST_DESCRIPTORS = 1 << 20
"""Closed at most where the system does not list those that are open."""


def start(run_folder: str, environ: Mapping[str, str]) -> None:
    """Start ``python -m autotrace.ship RUN_FOLDER`` (guarded) in a session of its own, no child of the caller.

    Call it from a process with one thread (it forks). Never raises: what goes wrong is in ``shipper.log``.
    """
    try:
        middle = os.fork()
    except OSError as error:
        _could_not_start(error)
        return
    if middle:
        with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored the kernel collects it, once it ended
            os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _become(run_folder, environ)
    except OSError as error:
        _could_not_start(error)
    finally:
        os._exit(1)


def _could_not_start(error: OSError) -> None:
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, f"autotrace: the shipper could not start: {error}\n".encode())


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a shipper or relay: the caller's credentials and proxies, no tracing, no GPU."""
    own = with_package(environ)
    own[env.AUTOTRACE] = "0"
    own["PYTHONSAFEPATH"] = "1"  # a user's ./mlflow or ./httpx.py must not become ours (3.11 and newer)
    own["CUDA_VISIBLE_DEVICES"] = ""  # decoding tokens may import torch, which must not take memory of a training GPU
    own["MLFLOW_DISABLE_TELEMETRY"] = "true"  # else a process that imported mlflow may never exit
    return own


def _become(run_folder: str, environ: Mapping[str, str]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    log = files.append(os.path.join(run_folder, layout.SHIPPER_LOG))
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    # Inherited descriptors (a pipe into `tee`, make's job server) would keep their other ends waiting for us.
    _close_from(3)
    os.nice(NICENESS)
    words = python("autotrace.run.guard", "autotrace.ship", run_folder)
    os.execve(sys.executable, words, variables(environ))


def _close_from(lowest: int) -> None:
    """Close every descriptor from ``lowest`` on, whatever the limit was when it was opened."""
    for listing in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(name) for name in os.listdir(listing)]
        except OSError:
            continue
        for number in numbers:
            if number >= lowest:
                os.closerange(number, number + 1)  # says nothing of one that is closed already
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    os.closerange(lowest, _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS))
