"""``make hostile``: every program bare and traced, a row each; what fired and arrived, what was made, kept and found.

    python -m tests.hostile.run [WORD ...]      # only rows whose name has one of the words

Exit code 1 if a row is not as it must be.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

from .measure import Observed
from .table import CASES, Case

COLUMNS = ("row", "fired", "arrived", "calls", "written", "delivered", "memory", "on disk", "late", "traced", "")
WIDTHS = (36, 6, 8, 7, 8, 10, 9, 9, 14, 14, 0)


def main(words: list[str]) -> int:
    """Print the table; the number of rows that are not as they must be."""
    cases = [case for case in CASES if not words or any(word in case.name for word in words)]
    print(f"Python {platform.python_version()}, {len(cases)} rows; each program ran bare and traced\n")
    _line(COLUMNS)
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
            bare, traced, problems = case.run(Path(folder))
            _line((*_cells(case, bare, traced), "; ".join(problems) or "ok"))
        failed += bool(problems)
    print(f"\n{len(cases) - failed} of {len(cases)} rows as they must be")
    return failed


def _cells(case: Case, bare: Observed, traced: Observed) -> tuple[str, ...]:
    report = traced.report
    memory = f"+{(report['peak'] - bare.report['peak']) >> 20} MB" if "peak" in report and "peak" in bare.report else ""
    secrets = f"{len(traced.on_disk(report['secrets']))} of {len(report['secrets'])}" if "secrets" in report else ""
    return (case.name, str(report.get("fired", "")), str(report.get("arrived", "")), str(report.get("calls", "")),
            str(traced.spool[1]), str(traced.spans), memory, secrets, _late(bare), _late(traced))  # fmt: skip


def _late(observed: Observed) -> str:
    """Median and maximum, in milliseconds, from when a timer was due to when its exception was caught."""
    report = observed.report
    return f"{report['late'] * 1e3:.2f}/{report['latest'] * 1e3:.2f} ms" if "late" in report else ""


def _line(cells: tuple[str, ...]) -> None:
    print("".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
