"""A real process, one of whose tools never answers: what is said while it runs, and when it was killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.step_records import Hit
from autotrace.ship.readers import of_run
from autotrace.tables import steps as findings
from autotrace.tables.conditions import equals
from autotrace.tables.hung import SECONDS, hanging, sentences
from autotrace.tables.reader import Reader
from tests.findings.judge import WAITED, Verdict, command
from tests.findings.scenarios import Scenario
from tests.findings.strange import HANGS, KILLED

DEADLINE = 600.0
"""Seconds after which what is waited for does not come any more."""


@contextlib.contextmanager
def played(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The process, once all but one of its trajectories have ended, and its run folder. Killed in the end."""
    folder.mkdir(parents=True)
    arguments, environ = command("v1", folder, [HANGS.name])
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(arguments, env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        _wait(lambda: any(folder.glob("runs/*/state.db")), process)
        (run,) = folder.glob("runs/*/run.json")
        _wait(lambda: _statuses(run.parent) == {"OK": HANGS.groups * HANGS.n - 1, "OPEN": 1}, process)
        yield process, run.parent
    finally:
        process.kill()
        process.wait()


def _wait(happened: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.2)


def _statuses(run: Path) -> dict[str, int]:
    with contextlib.closing(of_run(run)) as reader:
        rows = reader.select()
    return {status: sum(row.status == status for row in rows) for status in {row.status for row in rows}}


def judge(process: subprocess.Popen[bytes], run: Path, now_ns: int | None = None) -> list[Verdict]:
    """What is found of it while it hangs, and after it was killed. ``now_ns``: for who does not wait a minute."""
    with contextlib.closing(of_run(run)) as reader:
        (open_,) = reader.select(equals(status="OPEN", role="trajectory"), roots=True)
        begun = (open_.start_ns or 0) + int((SECONDS + 5) * 1e9)
        if now_ns is None:
            _wait(lambda: time.time_ns() > begun, process)
        said = sentences(hanging(reader, now_ns))
        verdicts = [_verdict(HANGS, list(_hits(reader, now_ns)), open_.trace_id)]
        if not said or open_.trace_id[:12] not in said[0] or "double" not in said[0]:
            verdicts[0].problem = f"status says {said}"
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait(lambda: "INTERRUPTED" in _statuses(run))
    with contextlib.closing(of_run(run)) as reader:
        verdicts.append(_verdict(KILLED, list(_hits(reader, now_ns)), open_.trace_id))
    return verdicts


def _hits(reader: Reader, now_ns: int | None) -> Iterator[Hit]:
    diagnosis = Diagnosis()
    for step in findings.steps(reader, now_ns=now_ns):
        yield from diagnosis.add(step)


def _verdict(scenario: Scenario, hits: list[Hit], trace_id: str) -> Verdict:
    right = [hit for hit in hits if hit.code == scenario.code and hit.record.trace_id == trace_id]
    verdict = Verdict("v1", scenario, 1, len(right), sum(hit.turn == scenario.turn for hit in right))
    for hit in hits:
        if hit not in right and hit.code not in scenario.also | WAITED:
            verdict.false[hit.code] = verdict.false.get(hit.code, 0) + 1
    return verdict
