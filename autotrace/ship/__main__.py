"""Run the shipper process of a run: ``python -m autotrace.ship RUN_FOLDER``, started by ``run.shipper_process``."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.run.shipper_process import ShipperLock
from autotrace.ship import process
from autotrace.ship.shipper import Shipper
from autotrace.ship.store.migrations import NewerDatabase


def main(run_folder: str) -> int:
    """Follow the run until the run is over; return ``BROKEN`` after an unexpected error. Logs only to
    ``shipper.log``."""
    folder = Path(run_folder)
    process.begin(folder)
    os.environ[env.OWN_RUN] = os.path.abspath(run_folder)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    log = logging.getLogger("autotrace.ship")
    with contextlib.suppress(OSError, ValueError):  # a segment of another node is open as long as its writer lives
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ShipperLock(folder) as lock:
        if not lock.held:
            return exit_codes.OK
        try:
            shipper = Shipper(folder)
            signal.signal(signal.SIGTERM, lambda *_: setattr(shipper, "stopped", True))
            try:
                shipper.follow()
            finally:
                shipper.close()
        except NewerDatabase as error:  # another try would change nothing
            log.error("cannot deliver this run: %s", error)
            return exit_codes.FAILED
        except Exception:
            log.exception("the shipper stopped because of an unexpected error")
            return exit_codes.BROKEN
    return exit_codes.OK


if __name__ == "__main__":
    process.leave(main(sys.argv[1]))
