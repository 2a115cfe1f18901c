"""``shipper.log``: what the processes of a shipper log."""

from __future__ import annotations

import logging
from pathlib import Path

from autotrace.run import files, layout


def log_to_file(run_folder: Path) -> None:
    """From now on this process logs there, and nowhere else."""
    path = run_folder / layout.SHIPPER_LOG
    files.ensure(path)
    logging.basicConfig(
        filename=path, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("autotrace").setLevel(logging.INFO)  # of a backend's library only what went wrong
