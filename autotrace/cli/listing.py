"""Tables of many rows, printed quickly: rich takes 5 ms of CPU a row, and a run has 100,000.

Looks like the tables of rich beside it. Cells stand on one line, and are made safe here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size
from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style

from autotrace.cli.terminal import one_line

MAX_WIDTH = 60
"""Of a column that is not the last one."""
MIN_LAST = 20
"""Of the last one, however narrow the terminal is."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    cells: Sequence[str]
    right: bool = False
    styles: Callable[[int], str] | None = None
    """Number of a row -> style of its cell, as rich writes one; only called on a terminal."""


def show(out: Console, columns: Sequence[Column], caption: str = "") -> None:
    """Print the table. On a terminal the last column gets what is left of a line."""
    columns = [replace(column, cells=_safe(column.cells)) for column in columns]
    widths = [_width(column, column is columns[-1]) for column in columns]
    last = len(columns) - 1
    if out.is_terminal:
        widths[last] = min(widths[last], max(MIN_LAST, out.width - sum(widths[:last]) - 2 * last - 1))
    shown = [_fitted(column, width, out) for column, width in zip(columns, widths, strict=True)]
    head = "  ".join(_padded(column.name, width, column.right) for column, width in zip(columns, widths, strict=True))
    bold = _styled(head.rstrip(), "bold", out)
    lines = map(str.rstrip, map("  ".join, zip(*shown, strict=True)))
    rule = "─" * (sum(widths) + 2 * last)
    end = [*([_styled(caption, "dim italic", out)] if caption else []), ""]
    out.file.write("\n".join(itertools.chain(("", bold, rule), lines, end)) + "\n")


def _safe(cells: Sequence[str]) -> Sequence[str]:
    """Each on one line. All are looked at in one go: in few runs there is one to change."""
    return cells if "".join(cells).isprintable() else list(map(one_line, cells))


def _width(column: Column, last: bool) -> int:
    plain = all(map(str.isascii, column.cells))
    widest = max(map(len if plain else cell_len, column.cells), default=0)
    return max(cell_len(column.name), widest if last else min(widest, MAX_WIDTH))


def _fitted(column: Column, width: int, out: Console) -> list[str]:
    """The cells, each ``width`` wide, with their styles."""
    cells = column.cells
    if all(map(str.isascii, cells)) and max(map(len, cells), default=0) <= width:
        fitted = [cell.rjust(width) for cell in cells] if column.right else [cell.ljust(width) for cell in cells]
    else:
        fitted = [_padded(cell, width, column.right) for cell in cells]
    if column.styles is None or not out.is_terminal:
        return fitted
    return [_styled(cell, column.styles(number), out) for number, cell in enumerate(fitted)]


def _padded(cell: str, width: int, right: bool) -> str:
    length = cell_len(cell)
    if length > width:
        return set_cell_size(cell, width - 1) + "…"
    return " " * (width - length) + cell if right else cell + " " * (width - length)


def _styled(text: str, style: str, out: Console) -> str:
    if not style or not out.is_terminal or out.color_system is None:
        return text
    return Style.parse(style).render(text, color_system=COLOR_SYSTEMS[out.color_system])
