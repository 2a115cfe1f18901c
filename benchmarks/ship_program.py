"""Delivers run folders one after the other in one process: ``python ship_program.py SINK FOLDER...``.

Whichever ``autotrace`` is first on ``PYTHONPATH`` does it, so nothing else of this checkout is imported. ``SINK``:
``nowhere`` replaces the backends by one that takes everything and looks at nothing; with ``nowhere without findings``
nothing is examined either. Prints a JSON list, one object a folder: CPU seconds (of the processes it starts as well,
and its own), wall seconds, peak memory so far, the machine's speed.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import sys
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

REAL, NOWHERE, WITHOUT_FINDINGS = "real", "nowhere", "nowhere without findings"


class Nowhere:
    """A sink for what is done before a backend comes in."""

    name = "jsonl"
    sent = 0

    def deliver(self, trajectories: Any) -> None:
        """Taken."""

    def bind(self, name: str, value: Any) -> None:
        """Not needed."""

    def size(self, trajectory: Any) -> int:
        """Nothing is sent."""
        return 0

    def page(self, trajectory: Any) -> None:
        """There are none."""

    def close(self) -> None:
        """Nothing is open."""


def cpu() -> float:
    """CPU seconds of this process and of those it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def speed() -> float:
    """Nanoseconds of ``ContextVar.set`` and ``reset``, as ``benchmarks.measures.speed`` has it; the middle of some."""
    variable: ContextVar[int] = ContextVar("speed")
    put, back, found = variable.set, variable.reset, []
    for _ in range(7):
        began = time.thread_time_ns()
        for _ in range(5_000):
            back(put(1))
        found.append((time.thread_time_ns() - began) / 5_000)
    return statistics.median(found)


def without_findings() -> None:
    """Nothing is examined in this process, as in releases that had no findings."""
    if importlib.util.find_spec("autotrace.insight") is None:
        return
    from unittest import mock

    from autotrace.insight import registry
    from autotrace.insight.profile import Profile
    from autotrace.ship.index import summary
    from autotrace.ship.live_findings import LiveFindings

    mock.patch.object(summary, "examine", lambda *_: Profile(registry.stamp())).start()
    mock.patch.object(LiveFindings, "settle", lambda *_: False).start()
    mock.patch.object(LiveFindings, "waiting", False).start()


def main(sink: str, folders: list[str]) -> None:
    """Deliver ``folders``."""
    import autotrace
    from autotrace.ship.__main__ import main as ship
    from autotrace.sinks import registry

    if sink == WITHOUT_FINDINGS:
        without_findings()
    if sink in (NOWHERE, WITHOUT_FINDINGS):
        registry.make = lambda *_: Nowhere()  # type: ignore[assignment]
    measured = []
    after = speed()
    for folder in folders:
        before = after
        began, spent, own = time.perf_counter(), cpu(), time.process_time()
        code = ship(folder)
        used, own_used, wall = cpu() - spent, time.process_time() - own, time.perf_counter() - began
        status = json.loads(Path(folder, "status.json").read_text())
        after = speed()
        measured.append({
            "cpu_s": used,
            "own_cpu_s": own_used,
            "wall_s": wall,
            "speed_ns": (before + after) / 2,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "code": code,
            "state": status["state"],
            "error": status.get("error"),
            "delivered": sum(backend["delivered"] for backend in status["backends"].values()),
        })  # fmt: skip
    print(json.dumps({"autotrace": autotrace.__file__, "folders": measured}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
