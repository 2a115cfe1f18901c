"""What token facts cost the trainer's driver: ``python benchmarks/token_facts.py`` (some minutes).

A traced process calls veRL's own functions on batches on the CPU, in shuffled rounds bare and with each setting of
``--token-facts``. What is added is shown in CPU seconds of the caller's thread and of the whole process (with writing
it out), and as the share of a step of ``STEP`` seconds, which is short for the smallest of these batches. Fails if a
step and what is added to it are more than a step / ``LEAST``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ((512, 2048), (1024, 4096))
"""Rows and tokens of a response."""
STEP = 60.0
LEAST = 0.98
ROUNDS = 5


def measured(rows: int, width: int) -> dict[str, dict[str, float]]:
    """Mode -> medians over the rounds of one process."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    environ |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        launch = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--run-dir", folder, "--"]
        program = [
            sys.executable,
            str(ROOT / "benchmarks" / "driver_program.py"),
            *map(str, (rows, width, STEP, ROUNDS)),
        ]
        done = subprocess.run([*launch, *program], env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    modes = dict.fromkeys(line["mode"] for line in lines)
    return {
        mode: {
            name: statistics.median(line[name] or 0.0 for line in lines if line["mode"] == mode)
            for name in ("thread", "clock", "process", "left")
        }
        for mode in modes
    }


def main() -> None:
    """See the module."""
    print("| batch | | trainer's functions, s | added to the caller's thread, s | to the process, s | rows left out"
          f" | step of {STEP:.0f} s, off / on |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    worst = 1.0
    for rows, width in SHAPES:
        by_mode = measured(rows, width)
        bare = by_mode["bare"]
        for mode in ("off", "some", "all"):
            one = by_mode[mode]
            thread, process = one["thread"] - bare["thread"], one["process"] - bare["process"]
            ratio = STEP / (STEP + thread)
            worst = min(worst, ratio)
            print(f"| {rows:,} x {width:,} | {mode} | {bare['thread']:.2f} | {thread:.3f} | {process:.3f} |"
                  f" {one['left']:.0f} | {ratio:.4f} |", flush=True)  # fmt: skip
    if worst < LEAST:
        sys.exit(f"a step takes more than 1 / {LEAST} of what it takes without")


if __name__ == "__main__":
    main()
