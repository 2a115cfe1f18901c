"""What was measured, as a table at the end of ``make view``. ``docs/view.md`` has it, too."""

from __future__ import annotations

from typing import Any

_ROWS: list[tuple[str, str, str]] = []


def measured(what: str, came: str, aim: str) -> None:
    """A row: what was measured, what came of it, what the page is to keep to."""
    _ROWS.append((what, came, aim))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table."""
    if _ROWS:
        terminalreporter.section("measured")
        widths = [max(len(row[column]) for row in _ROWS) for column in range(3)]
        for row in _ROWS:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
