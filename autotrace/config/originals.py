"""Hold the interpreter's own clocks, waits, locks and thread functions.

gevent, freezegun and ``unittest.mock`` replace functions in the modules ``time`` and ``_thread``, perhaps before
autotrace is imported. So autotrace has instances of its own of both modules. Nobody else finds these instances, so
nobody replaces anything there, and no mock of the host sees a call of autotrace.

    from autotrace.config.originals import time

    began = time.monotonic()  # under freezegun as well

time-machine changes the clocks in C, in all instances. Therefore ``monotonic`` is ``perf_counter`` here, which reads
the same clock on Linux and stays as it is, and ``wall_ns`` compares two clocks of the system.
"""

from __future__ import annotations

import _imp
import sys
from _frozen_importlib import BuiltinImporter

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes longer than everything else that starts with a process
    from typing import Any

_COARSE = 5
"""Number of Linux's ``CLOCK_REALTIME_COARSE``: the wall clock of the last tick, at most 10 ms ago."""
_TICK_NS = 50_000_000


def _instance(name: str) -> Any:
    """Build a second instance of the builtin module ``name``; the first instance if ``name`` is not builtin."""
    spec = BuiltinImporter.find_spec(name)
    if spec is None:
        return __import__(name)
    made = _imp.create_builtin(spec)
    _imp.exec_builtin(made)
    return made


time = _instance("time")
thread = _instance("_thread")
if time.get_clock_info("monotonic").implementation == time.get_clock_info("perf_counter").implementation:
    time.monotonic, time.monotonic_ns = time.perf_counter, time.perf_counter_ns


def wall_ns() -> int:
    """Return the time of day, in ns since 1970."""
    now: int = time.time_ns()
    if sys.platform != "linux":
        return now
    coarse: int = time.clock_gettime_ns(_COARSE)
    return now if abs(now - coarse) < _TICK_NS else coarse
