"""End a run in the run's first process: wait for delivery, within bounds, and print one line.

No other process imports this module; imports that only the end needs happen at the end.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

from autotrace.config import environment as env
from autotrace.config import stderr
from autotrace.config.originals import time

LEAST = 1.0
"""Seconds that delivery gets, however long this process took to write its own records."""
_installed_in: set[int] = set()


def install() -> None:
    """Register the hook if this is the run's first process, once.

    Called at activation, before any code of the host, so that the hook runs after all hooks of the host.
    """
    pid = os.getpid()
    if pid not in _installed_in and os.environ.get(env.MAIN_PID) == f"{pid}:{os.uname().nodename}":
        _installed_in.add(pid)
        stderr.remember()
        # Read now: the host may clear the environment.
        atexit.register(_at_exit, pid, os.environ[env.RUN_FOLDER], os.environ.get(env.QUIET) == "1")


def remove() -> None:
    """Remove the hook: the run is over before the process is."""
    atexit.unregister(_at_exit)
    _installed_in.clear()


def _at_exit(pid: int, run_folder: str, quiet: bool) -> None:
    if os.getpid() != pid:  # a forked child that leaves through sys.exit inherited the hook
        return
    from autotrace.run import host_timers

    def close() -> None:
        flusher = sys.modules.get("autotrace.record.flusher")
        if flusher is not None:
            flusher.stop()  # what a daemon thread still calls would never let delivery come to an end

    try:
        with host_timers.held():
            finish(run_folder, quiet, close)
    except (KeyboardInterrupt, SystemExit):
        return
    except Exception as error:  # law 1: the host's exit code and output are its own
        complain(run_folder, error)


def finish(run_folder: str, quiet: bool, close: Callable[[], None]) -> None:
    """Call ``close()``, which ends recording in this process; then wait for delivery and report the result."""
    from autotrace.run.drain import lost, summary, timeout_of, wait_for_delivery
    from autotrace.run.losses import DISK_FULL

    deadline = time.monotonic() + timeout_of(run_folder)
    close()
    faults = sys.modules.get("autotrace.record.faults")
    own: dict[str, int] = {} if faults is None else dict(faults.counts)
    timeout = max(LEAST, deadline - time.monotonic())
    if any(reason.startswith(("drop:exit", DISK_FULL)) for reason in own):  # what this process began stays incomplete
        timeout = min(timeout, LEAST)
    outcome = wait_for_delivery(run_folder, timeout, quiet=quiet)
    if not quiet or outcome.reason != "done" or lost(outcome, own):
        stderr.say(summary(run_folder, outcome, own))


def complain(run_folder: str, error: Exception) -> None:
    """Say on stderr that ``finish`` failed."""
    if os.path.isdir(run_folder):
        stderr.complain(f"cannot wait for delivery ({type(error).__name__})")
    else:
        stderr.complain(f"{run_folder} was removed while the program ran; what was not delivered is lost")
