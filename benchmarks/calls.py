"""What a call costs its caller: this tree, the commit before (``before.COMMITS``) and the floor in turns, row by row.

    python benchmarks/calls.py [--against CHECKOUT] [--rows "function,llm"]

A round plays each row once in every process, one process right after the other, so that all of them meet the same moods
of a shared machine. A figure is the tenth part from below of its rounds. This tree is played by two processes: how much
they differ is the noise, and rounds are added while it is too large to tell a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import before, report  # noqa: E402
from benchmarks.bench import Bench, Missing  # noqa: E402
from benchmarks.call_rows import FLOOR, LIMIT, LIMITS, NOT_SAMPLED, OFF, RECORDED, ROWS, TELLS, dearer  # noqa: E402

Result = dict[str, Any]
STARTS, ROUNDS, MOST = 2, 12, 6
"""So many times every process is started anew (where its memory lies makes some calls dearer), for so many rounds; at
most so many times while there is too much noise."""


class Lane:
    """A process that plays rows: ``call_program.py``."""

    def __init__(self, tree: Path, subject: str, folder: Path, environ: dict[str, str]) -> None:
        (folder / "spool").mkdir(parents=True)
        self._log = folder / "log"
        with open(self._log, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "benchmarks" / "call_program.py"), str(tree), str(folder), subject],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder,
                env={**os.environ, **environ}, start_new_session=True,
            )  # fmt: skip
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


class _Play:
    """The rounds so far."""

    def __init__(self, against: Path, rows: Sequence[str], environ: dict[str, str]) -> None:
        self.rows = rows
        self._trees = {"now": (ROOT, environ), "again": (ROOT, environ), "before": (against, {}), FLOOR: (ROOT, {})}
        self._found: dict[str, dict[str, list[float]]] = {row: {name: [] for name in self._trees} for row in rows}

    def start(self) -> None:
        """Play ``ROUNDS`` rounds in new processes."""
        with tempfile.TemporaryDirectory(prefix="autotrace-calls-") as folder:
            lanes: dict[tuple[str, str], Lane] = {}
            try:
                for number in range(ROUNDS + 1):
                    names = list(self._trees) if number % 2 else list(reversed(self._trees))
                    for row in self.rows:
                        for name in names:
                            tree, environ = self._trees[name]
                            which = name, FLOOR if name == FLOOR else _subject(row)
                            if which not in lanes:
                                lanes[which] = Lane(tree, which[1], Path(folder, str(len(lanes))), environ)
                            ns = lanes[which].ask(row)
                            if number:  # the first one warms up
                                self._found[row][name].append(ns)
            finally:
                for lane in lanes.values():
                    lane.close()

    def measured(self) -> Result:
        """Row -> microseconds, ratios and noise."""
        made: Result = {}
        for row, found in self._found.items():
            us = {name: sorted(each)[len(each) // 10] / 1e3 for name, each in found.items()}
            now, noise = (us["now"] + us["again"]) / 2, abs(us["now"] / us["again"] - 1)
            made[row] = {
                "floor_us": us[FLOOR], "before_us": us["before"], "now_us": now, "x_floor": now / us[FLOOR],
                "x_before": now / us["before"], "noise": noise,
            }  # fmt: skip
        return made


def played(against: Path, rows: Sequence[str] = tuple(ROWS), environ: dict[str, str] | None = None) -> Result:
    """This tree beside ``against``. ``environ``: of this tree's processes alone. Raises ``Missing``."""
    play = _Play(against, rows, environ or {})
    for start in range(MOST):
        play.start()
        made = play.measured()
        unclear = [
            row for row, each in made.items() if each["noise"] > TELLS or each["x_before"] > LIMITS.get(row, LIMIT)
        ]
        if start + 1 >= STARTS and not unclear:
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
    parser.add_argument("--rows", default=",".join(ROWS).replace("root, not", "root not"), help="some of them")
    options = parser.parse_args()
    rows = [row for row in ROWS if row.replace(",", "") in options.rows.split(",")]
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
