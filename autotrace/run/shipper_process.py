"""Starting the shipper, or a relay: detached from everything, so that no Ctrl-C, closed terminal or killed parent
reaches it. One per run folder: the process that holds ``shipper.lock``.

A ``guard`` stands above it and starts it again when it is killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotrace.config import environment as env
from autotrace.config.installation import with_package
from autotrace.config.originals import time
from autotrace.config.stderr import complain
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
                self.held = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self.held = False


NICENESS = 10
"""The cores belong to the training; at the end of the run, when delivery matters, they are idle."""


def start(run_folder: str, environ: Mapping[str, str]) -> None:
    """Start ``python -m autotrace.ship RUN_FOLDER`` (guarded). Never raises: what goes wrong is in ``shipper.log``."""
    try:
        log = files.append(os.path.join(run_folder, layout.SHIPPER_LOG))
        try:
            detach(python("autotrace.run.guard", "autotrace.ship", run_folder, str(NICENESS)), environ, log)
        finally:
            os.close(log)
    except OSError as error:
        complain(f"the shipper could not start: {error}")


def detach(words: Sequence[str], environ: Mapping[str, str], log: int | None = None) -> None:
    """Run ``words`` in a session of its own, in the environment of a shipper. ``log``: what it writes to; else to our
    stderr. Raises ``OSError``.

    ``sh`` puts it into the background and ends, so that nobody has to wait for it. It inherits no descriptor: a pipe
    into ``tee`` or make's job server would keep its other end waiting.
    """
    try:
        subprocess.run(
            ["/bin/sh", "-c", '"$0" "$@" &', *words],
            env=variables(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if log is None else log,
            stderr=log,
            start_new_session=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[-3]} was not started within {error.timeout:g} seconds") from error


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a shipper or relay: the caller's credentials and proxies, no tracing, no GPU."""
    own = with_package(environ)
    own[env.AUTOTRACE] = "0"
    own["PYTHONSAFEPATH"] = "1"  # a user's ./mlflow or ./httpx.py must not become ours (3.11 and newer)
    own["CUDA_VISIBLE_DEVICES"] = ""  # decoding tokens may import torch, which must not take memory of a training GPU
    own["MLFLOW_DISABLE_TELEMETRY"] = "true"  # else a process that imported mlflow may never exit
    return own
