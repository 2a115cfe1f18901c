"""Traced programs that things happen to, and the table that ``make faults`` ends with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.outcome import Outcome, ledgers
from tests.places import installation, place  # noqa: F401 - fixtures
from tests.ship.spools import new_run

ROOT = Path(__file__).resolve().parent.parent.parent
_ROWS: list[tuple[str, tuple[int, int, int, int, int], str]] = []

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose first process is gone already."""
    return new_run(tmp_path)


@pytest.fixture
def start(run: Path) -> Iterator[Start]:
    """Starts the program: ``start("some", 10)``. What still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        scenario: str, *arguments: object, folder: Path | None = None, **options: object
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.faults.program", str(folder or run), scenario, *map(str, arguments)]
        ledger = str(ledgers(folder or run))
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": ledger, **(options.pop("env", None) or {})}  # type: ignore[dict-item]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )  # type: ignore[call-overload]
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Put a fault into the table: ``note("SIGKILL", outcome, "what was lost is younger than 0.2 s")``."""

    def add(fault: str, found: Outcome, remark: str = "") -> None:
        _ROWS.append((fault, found.row(), remark))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ROWS:
        return
    terminalreporter.section("faults (calls; torn in bytes)")
    head = ("fault", "written", "delivered", "duplicated", "lost", "torn", "")
    rows = [head, *((fault, *map(str, row), remark) for fault, row, remark in _ROWS)]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, 6)), row[6]]
        terminalreporter.write_line("  ".join(cells).rstrip())
