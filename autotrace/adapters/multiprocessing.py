"""multiprocessing: its children write out what they recorded before they end.

Children made by ``fork`` and by the fork server leave with ``os._exit``, after which no exit hook runs: a child that
lived for less than a flush interval would leave nothing. What they do run is multiprocessing's own finalizers.
"""

from __future__ import annotations

import functools
from multiprocessing import util

from autotrace.record import faults, flusher

_LAST = -1_000
"""Exit priority: after the finalizers of the host (they run from high to low)."""


@functools.cache
def install() -> None:
    """Register what has to run in every child. Called right after ``multiprocessing.util`` was imported;
    idempotent."""
    util.register_after_fork(install, _in_child)


def _in_child(_: object) -> None:
    try:
        util.Finalize(None, flusher.shutdown, exitpriority=_LAST)
    except Exception as error:
        faults.failed("multiprocessing", error)
