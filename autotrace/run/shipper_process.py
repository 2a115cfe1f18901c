"""Start the shipper, or a relay, detached: no Ctrl-C, closed terminal or killed parent reaches the process.

A run folder has one shipper: the process that holds ``shipper.lock``. A ``guard`` starts a killed shipper again.
"""

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
    """Takes the shipper's lock: after ``with ShipperLock(run_folder) as lock:``, ``lock.held`` tells the result.

    Raises ``OSError`` if the folder cannot be written.
    """

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
"""Niceness of the shipper. The cores belong to the training; the cores are idle when delivery matters at the end."""


def start(run_folder: str, environ: Mapping[str, str]) -> None:
    """Start ``python -m autotrace.ship RUN_FOLDER`` (guarded). Never raises: ``shipper.log`` has the errors."""
    try:
        log = files.append(os.path.join(run_folder, layout.SHIPPER_LOG))
        try:
            detach(python("autotrace.run.guard", "autotrace.ship", run_folder, str(NICENESS)), environ, log)
        finally:
            os.close(log)
    except OSError as error:
        complain(f"the shipper could not start: {error}")


def detach(words: Sequence[str], environ: Mapping[str, str], log: int | None = None) -> None:
    """Run ``words`` in a new session, in the environment of a shipper.

    ``log`` is the output's descriptor; default: our stderr. ``sh`` puts the command into the background and ends, so
    that nobody has to wait. The command inherits no descriptor: a pipe into ``tee`` or make's job server would keep its
    other end waiting. Raises ``OSError``.
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
    """Return the environment of a shipper or relay: the caller's credentials and proxies, no tracing, no GPU."""
    own = with_package(environ)
    own[env.AUTOTRACE] = "0"
    own["PYTHONSAFEPATH"] = "1"  # a user's ./mlflow or ./httpx.py must not become ours (3.11 and newer)
    own["CUDA_VISIBLE_DEVICES"] = ""  # decoding tokens may import torch, which must not take memory of a training GPU
    own["MLFLOW_DISABLE_TELEMETRY"] = "true"  # else a process that imported mlflow may never exit
    return own
