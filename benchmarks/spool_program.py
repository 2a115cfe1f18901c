"""Fills a run folder: ``python -m benchmarks.spool_program FOLDER BACKEND URI TRAJECTORIES PROMPT RESPONSE``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from autotrace.record import flusher
from autotrace.run.info import RunInfo
from benchmarks.measures import _copy
from benchmarks.subjects import Autotrace
from benchmarks.workload import Agent

TURNS = 4


def main(folder: Path, backend: str, uri: str, trajectories: int, prompt: int, response: int) -> None:
    """Record so many trajectories of four turns as if they had been rolled out, and describe the run."""
    RunInfo(
        run_id="bench", created="2026-01-01T00:00:00+00:00", command=["bench"], host=os.uname().nodename, main_pid=0,
        backends=[backend], project="dev/bench" if backend == "weave" else "bench", drain_timeout=5.0,
        tracking_uri=uri if backend == "mlflow" else None,
    ).write(folder)  # fmt: skip
    subject = Autotrace(folder)

    class Traced(Agent):
        pass

    for name, role in (("generate", "llm"), ("tool", "tool"), ("run", "trajectory")):
        setattr(Traced, name, subject.wrap(_copy(Agent.__dict__[name]), role))
    agent = Traced(TURNS, prompt, response, 0.0)

    async def run() -> None:
        for number in range(trajectories):
            await agent.run(f"uid-{number // 8}", number // 64, number % 8)
            if number % 16 == 0:
                subject.settle()

    asyncio.run(run())
    flusher.shutdown()
    print(json.dumps({"spans": trajectories * (1 + 2 * TURNS)}))


main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:]))
