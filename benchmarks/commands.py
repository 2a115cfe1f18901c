"""What commands take on a large run: ``python benchmarks/commands.py [--trajectories 10000] [--lines 100000]``.

Plays a run of so many trajectories, lets the shipper read it, and calls each command on it, a process each. Judged is
CPU time, the median of ``--rounds``: on a machine with other work the clock says little. Fails if one is over its goal.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autotrace.ship.readers import of_run  # noqa: E402
from autotrace.ship.shipper import ship  # noqa: E402
from autotrace.spool.records import Bind  # noqa: E402
from autotrace.tables.conditions import equals  # noqa: E402
from benchmarks.findings import written  # noqa: E402
from benchmarks.rollouts import Writer  # noqa: E402
from benchmarks.spool_program import WORDS, _tokenizer  # noqa: E402
from tests.ship.spools import new_run  # noqa: E402

STEP = 128
"""Trajectories of a step."""
GROUP = 16
MANY_LINES = 2.0
"""Seconds for ``ls`` of ``--lines`` trajectories."""


class Worker(Writer):
    """Speaks the tokens of the benchmarks' tokenizer."""

    def _ids(self, length: int) -> bytes:
        return array("i", [self._draw.randrange(WORDS) for _ in range(length)]).tobytes()

    def bind(self, tokenizer: dict[str, str]) -> bytes:
        """Say where the tokenizer is."""
        return self._framed(Bind("tokenizer", tokenizer, time.monotonic_ns()))


def played(parent: Path, trajectories: int, turns: int) -> Path:
    """A run whose trajectories have been read by the shipper and wait for a backend that takes none."""
    run = new_run(parent, project="bench")
    tokenizer = dict(_tokenizer(run / "tokenizer"))
    writer = Worker(run.name, os.uname().nodename, 100, turns=turns, prompt=200, response=100, tool=50)
    with (run / "spool" / writer.name).open("wb") as segment:
        segment.write(writer.begin() + writer.bind(tokenizer))
        for number in range(trajectories):
            uid = f"uid-{number // GROUP}"
            segment.writelines(writer.rollout(number // STEP, uid, number % GROUP))
        segment.write(writer.end())
    ship(run, once=True)
    return run


def commands(run: Path, out: Path) -> Iterator[tuple[str, float | None, list[str]]]:
    """What is called, the seconds it may take, and its words."""
    trace = of_run(run).select(equals(step=1), roots=True)[0].trace_id
    chosen = ["--step", "1", "--sample", f"uid-{STEP // GROUP}"]
    yield "ls", 0.5, ["ls", str(run)]
    yield "ls --step 1", 0.5, ["ls", str(run), "--step", "1"]
    yield "ls --where ... --sort reward", 0.5, ["ls", str(run), "--where", "reward < 0.5", "--sort", "reward"]
    yield "status", 1.0, ["status", str(run)]
    yield "show", 1.0, ["show", trace, str(run)]
    yield "compare, a group", 1.0, ["compare", "--run", str(run), *chosen]
    yield "steps", 1.0, ["steps", str(run)]
    yield "diagnose", 1.0, ["diagnose", str(run)]
    yield "sql, trajectories", 1.0, [
        "sql", "SELECT step, avg(reward) FROM trajectories GROUP BY step", str(run)
    ]  # fmt: skip
    for format in ("jsonl", "sft", "atif", "verl", "parquet"):
        words = ["export", str(run), "--format", format, "--out", str(out / format)]
        yield f"export --format {format}, a group", 1.0, [*words, *chosen]
    yield f"export --format sft, a step ({STEP})", None, [
        "export", str(run), "--format", "sft", "--out", str(out / "step"), "--step", "1"
    ]  # fmt: skip


def measured(words: list[str], rounds: int) -> tuple[float, float]:
    """Seconds of CPU and by the clock, medians."""
    cpu, wall = [], []
    program = "from autotrace.cli.main import main; main()"
    for _ in range(rounds):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.monotonic() - began)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode:
            raise SystemExit(f"autotrace {' '.join(words)} failed: {done.stderr[-500:]}")
    return statistics.median(cpu), statistics.median(wall)


def main() -> int:
    """Print a line each; 1 if one is over its goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--lines", type=int, default=100_000, help="trajectories of the run for ls alone")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    over = []
    with tempfile.TemporaryDirectory(prefix="autotrace-commands-") as name:
        run = played(Path(name), options.trajectories, options.turns)
        size = sum(path.stat().st_size for path in (run / "spool").iterdir()) / 1e6
        print(f"{options.trajectories:,} trajectories of {options.turns} turns, {size:,.0f} MB of segments")
        todo = list(commands(run, Path(name, "out")))
        (Path(name) / "lines").mkdir()
        lines = written(Path(name, "lines"), options.lines)
        todo.append((f"ls of {options.lines:,}", MANY_LINES, ["ls", str(lines)]))
        for title, goal, words in todo:
            cpu, wall = measured(words, options.rounds)
            verdict = "" if goal is None else f"goal {goal:.1f}: {'met' if cpu <= goal else 'NOT MET'}"
            over += [title] if goal is not None and cpu > goal else []
            print(f"{title:36} {cpu:6.2f} s of CPU {wall:6.2f} s  {verdict}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
