"""The exit hook of the run's first process: it waits for delivery, within bounds, and says one line.

Imported in no other process; what it needs at the end it imports at the end.
"""

from __future__ import annotations

import atexit
import os
import sys

from autotrace.config import environment as env
from autotrace.config import stderr

DRAIN_TIMEOUT = 60.0
_installed_in: set[int] = set()


def install() -> None:
    """Register the hook if this is the run's first process, once.

    Called at activation, before any code of the host, so that it runs after all hooks of the host.
    """
    pid = os.getpid()
    if pid not in _installed_in and os.environ.get(env.MAIN_PID) == f"{pid}:{os.uname().nodename}":
        _installed_in.add(pid)
        stderr.remember()
        atexit.register(_at_exit, pid)


def _at_exit(pid: int) -> None:
    # A forked child that leaves through sys.exit inherited the hook.
    if os.getpid() != pid:
        return
    try:
        _finish(os.environ[env.RUN_FOLDER], os.environ.get(env.QUIET) == "1")
    except (KeyboardInterrupt, SystemExit):
        return
    except Exception as error:  # law 1: the host's exit code and output are its own
        stderr.complain(f"cannot wait for delivery ({type(error).__name__})")


def _finish(run_folder: str, quiet: bool) -> None:
    from autotrace.run.drain import summary, wait_for_delivery
    from autotrace.run.losses import losses

    flusher = sys.modules.get("autotrace.record.flusher")
    if flusher is not None:
        flusher.shutdown()
    outcome = wait_for_delivery(run_folder, _timeout(run_folder), quiet=quiet)
    if not quiet or outcome.reason != "done" or losses(outcome.status.get("drops") or {}):
        stderr.say(summary(run_folder, outcome))


def _timeout(run_folder: str) -> float:
    """Seconds to wait, from ``run.json``."""
    import json

    from autotrace.run import layout

    try:
        with open(os.path.join(run_folder, layout.RUN_JSON), "rb") as file:
            return float(json.load(file)["drain_timeout"])
    except (OSError, ValueError, KeyError, TypeError):
        return DRAIN_TIMEOUT
