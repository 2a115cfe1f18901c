"""``make stress``: every kind of function under collections, threads, forks, signals, tracers and an exchange of code.

    python -m tests.stress.run [SECONDS [SEED]]       # for this Python, all parts together

Exit code 1 if a process died, returned a wrong value, or lost a record that no counter mentions.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from autotrace.run import layout
from autotrace.run.info import find_runs
from autotrace.spool.records import Counters, Define, Open, Record
from autotrace.spool.segment import read_frames

HERE = Path(__file__).parent
PARTS = ("collections", "finalizers", "processes", "exchange")
SLICE = 10.0
"""Seconds of one process."""
EXACT = PARTS[:3]
"""Parts in which every call is recorded or counted; while code is exchanged, a call may run unrecorded."""


def run(part: str, seconds: float, seed: int, folder: Path) -> str:
    """Run one part in a traced process; returns what was done. Raises ``AssertionError`` where something is wrong."""
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--drain-timeout", "0", "--quiet"]
    options = ["--keep-spool", "1", "--run-dir", str(folder), "--spec", str(HERE / "spec.yaml"), "--"]
    command = [sys.executable, "-X", "faulthandler", str(HERE / "program" / "stress.py"), part, str(seconds), str(seed)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    done = subprocess.run(
        [*launcher, *options, *command], capture_output=True, text=True, timeout=seconds * 3 + 120, check=False,
        env=environ, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, f"{part}: ended with {done.returncode}\n{done.stderr[-4000:]}"
    assert "Exception ignored" not in done.stderr, f"{part}: {done.stderr[-4000:]}"
    did = json.loads(done.stdout)
    recorded, drops = read(find_runs(folder)[0][-1])
    ran, written, counted = sum(did["ran"].values()), sum(recorded.values()), sum(drops.values())
    for name, number in recorded.items():
        assert number <= did["ran"][name], f"{part}: {number} calls of {name} recorded, {did['ran'][name]} made"
    if part in EXACT:
        assert ran == written + counted, f"{part}: {ran} calls, {written} recorded, {dict(drops)} counted: {recorded}"
    faults = {reason: number for reason, number in drops.items() if not reason.startswith("drop:")}
    assert not faults, f"{part}: faults of autotrace: {faults}"
    rounds = f"{part}: {did['rounds']} rounds, {did['collections']} collections"
    return f"{rounds}, {ran} calls, {written} recorded, {dict(drops)}"


def read(run_folder: Path) -> tuple[Counter[str], Counter[str]]:
    """How many calls of each function a run recorded, and its counters of what was not recorded."""
    recorded: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    for path in (run_folder / layout.SPOOL).glob(f"*{layout.SEGMENT_SUFFIX}"):
        fd = os.open(path, os.O_RDONLY)
        segment = [msgspec.msgpack.decode(frame.payload, type=Record) for frame in read_frames(fd)]
        os.close(fd)
        names = {record.id: record.name for record in segment if isinstance(record, Define)}
        recorded.update(names[record.target] for record in segment if isinstance(record, Open))
        counters = [record for record in segment if isinstance(record, Counters)]
        if counters:
            drops.update(counters[-1].drops)
    return recorded, drops


def main(seconds: float, seed: int) -> int:
    """Run all parts, over and over, each time with another seed; the number of runs that failed."""
    print(f"Python {platform.python_version()}, {seconds:g} s, seed {seed}", flush=True)
    rounds = max(1, round(seconds / len(PARTS) / SLICE))
    failed = 0
    for number in range(rounds):
        for part in PARTS:
            with tempfile.TemporaryDirectory(prefix="stress-", ignore_cleanup_errors=True) as folder:
                try:
                    print(run(part, seconds / len(PARTS) / rounds, seed + number, Path(folder)), flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"FAILED {error}", flush=True)
    return failed


if __name__ == "__main__":
    given = [*sys.argv[1:], *("600", str(random.randrange(1 << 30)))[len(sys.argv) - 1 :]]
    sys.exit(1 if main(float(given[0]), int(given[1])) else 0)
