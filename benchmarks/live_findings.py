"""What findings cost the shipper while a run goes on: ``python benchmarks/live_findings.py [TRAJECTORIES]`` (minutes).

One spool is delivered by processes with findings and by processes without them, in turns: first its trajectories, then
what a trainer says of them later (advantages, some of them of the wrong sign, the step that trained, metrics). Each
step is so looked at twice, and in each the most trajectories that may be are delivered once more with what was found.
Prints CPU seconds, and fails if findings add more than ``MOST``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from autotrace.run.info import RunInfo  # noqa: E402
from autotrace.ship.readers import of_run  # noqa: E402
from autotrace.spool.records import StepFacts  # noqa: E402
from benchmarks.ship_program import without_findings  # noqa: E402
from benchmarks.spool_program import GROUP  # noqa: E402
from tests.ship.spools import Process  # noqa: E402

BACKENDS = ("jsonl", "parquet", "mlflow")
MOST = 0.15
ROUNDS = 3
TURNS, PROMPT, RESPONSE, TOOL = 10, 1_000, 256, 100
STEP = 64
"""Rollouts of a step."""
WRONG = 4
"""Of so many rollouts one has an advantage of the wrong sign."""


def deliver(warm: Path, folder: Path, findings: bool) -> None:
    """In a process of its own: ship ``warm``, which imports everything, then ``folder`` and what is said later; print
    the CPU seconds of that, and how many trajectories findings sent again."""
    from autotrace.ship.shipper import ship

    again: list[Any] = []
    if findings:
        from autotrace.ship.delivery.outbox import Outbox

        original = Outbox.again
        Outbox.again = lambda self, row: (again.append(row), original(self, row))  # type: ignore[assignment]
    else:
        without_findings()
    assert ship(warm, once=True).state == "done"
    again.clear()
    spent = 0.0
    for say in (lambda _: None, say_later):
        say(folder)
        before = time_of_all()
        assert ship(folder, once=True).state == "done"
        spent += time_of_all() - before
    print(json.dumps({"cpu": spent, "again": len(again)}))


def time_of_all() -> float:
    """CPU seconds of this process and of those it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def say_later(folder: Path) -> None:
    """What the trainer says of the trajectories."""
    process = Process(folder, "node-1-later", run_id="bench")
    with contextlib.closing(of_run(folder)) as reader:
        rows = reader.select()
    for number, row in enumerate(rows):
        trace, reward = bytes.fromhex(row.trace_id), row.reward or 0.0
        process.fact("advantage", (0.5 - reward) if number % WRONG == 0 else reward - 0.5, trace)
        process.fact("trained_in_step", row.step, trace)
    for step in sorted({row.step for row in rows if row.step is not None}):
        process.write(StepFacts(step, "metrics", {"critic/score/mean": 0.5}, process.tick()))
    process.exit()


def copy(spool: Path, folder: Path, backend: str) -> Path:
    """A run that nothing was delivered of."""
    shutil.copytree(spool, folder)
    info = RunInfo.read(folder)
    info.backends, info.run_id, info.project = [backend], "bench", "bench"
    info.tracking_uri = f"sqlite:///{folder}/mlflow.db" if backend == "mlflow" else None
    info.write(folder)
    process = Process(folder, "node-1-first", run_id="bench")
    process.bind("config", project_name="bench", rollout_n=GROUP, adv_estimator="grpo", trainer_mode="sync")
    process.exit()
    return folder


def round_of(spools: Sequence[Path], backend: str, findings: bool) -> tuple[float, int]:
    """CPU seconds of both deliveries of one copy; how many trajectories were sent again."""
    with tempfile.TemporaryDirectory() as name:
        folders = [str(copy(spool, Path(name, str(at), "run"), backend)) for at, spool in enumerate(spools)]
        command = [sys.executable, __file__, "--deliver", *folders, str(int(findings))]
        environ = os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
        done = subprocess.run(command, env=environ, cwd=name, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        answer = json.loads(done.stdout.splitlines()[-1])
        return answer["cpu"], answer["again"]


def recorded(folder: Path, count: int) -> Path:
    """A spool of so many trajectories."""
    folder.mkdir(mode=0o700)
    sizes = map(str, (count, TURNS, PROMPT, RESPONSE, TOOL, STEP))
    subprocess.run([sys.executable, "-m", "benchmarks.spool_program", str(folder), *sizes], cwd=ROOT, check=True,
                   env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)  # fmt: skip
    return folder


def main() -> None:
    """See the module."""
    if sys.argv[1:2] == ["--deliver"]:
        deliver(Path(sys.argv[2]), Path(sys.argv[3]), findings=sys.argv[4] == "1")
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    with tempfile.TemporaryDirectory() as name:
        spools = recorded(Path(name, "one"), 1), recorded(Path(name, "all"), count)
        print("| backend | without, s | with, s | added | delivered again |\n|---|---|---|---|---|")
        worst = 0.0
        for backend in BACKENDS:
            pairs = [(round_of(spools, backend, False), round_of(spools, backend, True)) for _ in range(ROUNDS)]
            without, with_ = (statistics.median(pair[which][0] for pair in pairs) for which in (0, 1))
            added = statistics.median(pair[1][0] / pair[0][0] - 1 for pair in pairs)
            worst = max(worst, added)
            print(
                f"| {backend} | {without:.2f} | {with_:.2f} | {added:+.1%} | {pairs[0][1][1]} of {count} |", flush=True
            )
    if worst > MOST:
        sys.exit(f"findings add {worst:.1%} to what the shipper takes")


if __name__ == "__main__":
    main()
