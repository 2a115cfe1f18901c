"""Run ``python -m MODULE RUN_FOLDER``, and start the module again after a kill or a breakdown.

Usage: ``python -m autotrace.run.guard MODULE RUN_FOLDER NICENESS``. A kill is ``kill -9`` or the kernel's memory
killer. The guard keeps a shipper or relay running with the environment of the first start: the credentials of a backend
are nowhere else. The guard ends with its child, and passes SIGTERM on to the child. If somebody kills both, the records
stay in the segments and ``autotrace ship RUN`` delivers the records. Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from autotrace.config import exit_codes
from autotrace.run import files, layout
from autotrace.run.process import python

FIRST_DELAY = 0.2
"""Seconds before the first new start; doubled each time, up to ``LONGEST_DELAY``."""
LONGEST_DELAY = 30.0
CALM = 60.0
"""Seconds of life after which earlier deaths are forgotten."""
GIVE_UP = 10
"""Deaths in a row after which the guard gives up and leaves the rest to a person."""


def guard(words: list[str], run_folder: str) -> int:
    """Run ``words`` until the command ends by itself; return the exit code. Stop trying when the run folder is gone."""
    stopped: list[int] = []
    charge: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        if charge is not None:
            charge.send_signal(number)

    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a relay is started by a thread that takes no signals
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # SIGCHLD ignored by a parent hides how the child ended
    signal.signal(signal.SIGTERM, stop)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    deaths, delay = 0, FIRST_DELAY
    while files.is_own(run_folder):  # a stranger's folder could name code that runs as this user
        began = time.monotonic()
        charge = subprocess.Popen(words)
        if stopped:  # the signal came while the process was being started
            charge.send_signal(stopped[-1])
        if not deaths:
            _let_go(run_folder)
        code = charge.wait()
        if stopped or (code >= 0 and code != exit_codes.BROKEN):
            return max(code, 0)
        if time.monotonic() - began > CALM:
            deaths, delay = 0, FIRST_DELAY
        deaths += 1
        if deaths > GIVE_UP or not os.path.isdir(layout.spool_of(run_folder)):
            return exit_codes.FAILED
        how = f"was killed by signal {-code}" if code < 0 else "broke down"
        sys.stderr.write(f"{words[-2]} {how}; it is started again\n")
        sys.stderr.flush()
        again = time.monotonic() + delay
        while not stopped and time.monotonic() < again:
            time.sleep(0.1)  # a signal does not end a sleep
        if stopped:
            return exit_codes.OK
        delay = min(delay * 2, LONGEST_DELAY)
    return exit_codes.FAILED


def _let_go(run_folder: str) -> None:
    """Close the streams of the starting process: a pipe into ``tee`` would wait for the guard."""
    try:
        log = files.append(os.path.join(run_folder, layout.SHIPPER_LOG))
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    module, folder, niceness = sys.argv[1:]
    os.nice(int(niceness))
    raise SystemExit(guard(python(module, folder), folder))
