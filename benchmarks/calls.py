"""What a call costs its caller: this tree, the commit before (``before.COMMITS``) and the floor in turns, row by row.

    python benchmarks/calls.py [--against CHECKOUT] [--rows "function,llm"]

A round plays each row once in every process, one process right after the other and all on one CPU, so that they meet
the same moods of a shared machine. The ratio of a start is the median of its rounds' ratios. Beside four busy processes
on two CPUs, this differs by a twentieth between two starts (by a third if each process takes any CPU). The table has
the median of the starts. While a row seems to be too dear, all rows are started anew, up to ``MOST`` times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from operator import truediv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import before, report  # noqa: E402
from benchmarks.bench import Bench, Missing, pin  # noqa: E402
from benchmarks.call_rows import DELAY, FLOOR, NOT_SAMPLED, OFF, RECORDED, ROWS, dearer  # noqa: E402

Result = dict[str, Any]
STARTS, MOST, ROUNDS = 2, 5, 24
"""The starts as a rule, the starts while a row seems to be dearer, and the rounds of a start. Where a process's memory
lies makes some calls dearer, so one start proves nothing."""


class Lane:
    """A process that plays rows: ``call_program.py``."""

    def __init__(self, tree: Path, subject: str, folder: Path, environ: dict[str, str], cpu: int) -> None:
        (folder / "spool").mkdir(parents=True)
        self._log = folder / "log"
        with open(self._log, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "benchmarks" / "call_program.py"), str(tree), str(folder), subject],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder,
                env={**os.environ, **environ}, start_new_session=True,
            )  # fmt: skip
        pin(self._process, cpu)
        self._answer()

    def ask(self, row: str) -> float:
        """Nanoseconds of a call."""
        assert self._process.stdin is not None
        print(json.dumps([row, ROWS[row]]), file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing((self._log.read_text(errors="replace").strip().splitlines() or ["it ended"])[-1][:200])
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _subject(row: str) -> str:
    return {"root, not sampled": NOT_SAMPLED, "call that is off": OFF}.get(row, RECORDED)


def _start(trees: dict[str, tuple[Path, dict[str, str]]], rows: Iterable[str], cpu: int) -> Result:
    """Play ``ROUNDS`` rounds in new processes: row -> name of ``trees`` -> nanoseconds of each round."""
    found: dict[str, dict[str, list[float]]] = {row: {name: [] for name in trees} for row in rows}
    with tempfile.TemporaryDirectory(prefix="autotrace-calls-") as folder:
        lanes: dict[tuple[str, str], Lane] = {}
        try:
            for number in range(ROUNDS + 1):
                names = list(trees) if number % 2 else list(reversed(trees))
                for row, by_tree in found.items():
                    for name in names:
                        tree, environ = trees[name]
                        which = name, FLOOR if name == FLOOR else _subject(row)
                        if which not in lanes:
                            lanes[which] = Lane(tree, which[1], Path(folder, str(len(lanes))), environ, cpu)
                        ns = lanes[which].ask(row)
                        if number:  # the first one warms up
                            by_tree[name].append(ns)
        finally:
            for lane in lanes.values():
                lane.close()
    return found


def _figures(starts: Sequence[Result]) -> Result:
    """Microseconds and ratios of a row."""
    made: Result = {}
    for name in starts[0]:
        made[f"{name}_us"] = statistics.median(ns for start in starts for ns in start[name]) / 1e3
        made[f"x_{name}"] = statistics.median(
            statistics.median(map(truediv, start["now"], start[name])) for start in starts
        )
    return made | {"starts": len(starts)}


def played(against: Path, rows: Iterable[str] = tuple(ROWS), environ: dict[str, str] | None = None) -> Result:
    """This tree beside ``against``: row -> its figures. ``environ``: of this tree's processes alone. Raises
    ``Missing``."""
    undelayed = {DELAY: ""}
    trees = {"now": (ROOT, environ or {}), "before": (against, undelayed), FLOOR: (ROOT, undelayed)}
    found: dict[str, list[Result]] = {row: [] for row in rows}
    made: Result = {}
    for number in range(MOST):
        for row, start in _start(trees, found, number).items():
            found[row].append(start)
            made[row] = _figures(found[row])
        if number + 1 >= STARTS and not dearer(made):
            break
    return made


def calls(bench: Bench) -> Result:
    """The scenario of ``make bench``."""
    with before.checkout(bench.against, bench.missing, before.CALLS) as against:
        if against is None:
            return {}
        try:
            return played(against)
        except Missing as missing:
            bench.missing["calls"] = str(missing)
            return {}


def main() -> int:
    """The table alone."""
    parser = argparse.ArgumentParser(description="What a call costs its caller.")
    parser.add_argument("--against", type=before.named, default=before.HISTORY, metavar="CHECKOUT", help=before.HELP)
    parser.add_argument("--rows", help="some of them; all as a rule")
    options = parser.parse_args()
    by_name = {row.replace(",", ""): row for row in ROWS}
    names = options.rows.split(",") if options.rows else list(by_name)
    if unknown := [name for name in names if name not in by_name]:
        parser.error(f"there is no row {unknown[0]!r}; choose from {', '.join(by_name)}")
    rows = [by_name[name] for name in names]
    missing: dict[str, str] = {}
    with before.checkout(options.against, missing, before.CALLS) as against:
        if against is None:
            parser.error("; ".join(missing.values()) or "there is nothing to compare with")
        made = played(against, rows)
    report.show_tables(report.beside(made))
    beyond = dearer(made)
    print(*beyond, sep="\n")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
