"""Tables of many rows, printed quickly: rich takes 5 ms of CPU a row, and a run has 100,000.

Looks like the tables of rich beside it. Each cell is one line, and is made safe here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size
from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style

from autotrace.cli.terminal import one_line, width

MAX_WIDTH = 60
"""Widest column, except for the last one."""
MIN_WIDTH = 12
"""Narrowest column of text, however narrow the terminal is."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    cells: Sequence[str]
    right: bool = False
    styles: Callable[[int], str] | None = None
    """Number of a row -> style of its cell, as rich writes one; only called on a terminal."""


def show(out: Console, columns: Sequence[Column], caption: str = "") -> None:
    """Print the table, in several parts with the same first column where a line does not hold it."""
    room = width(out)
    for part in _parts(columns, room and room - out.is_terminal):
        shown = [_fitted(column, wide, out) for column, wide in part]
        head = "  ".join(_padded(column.name, wide, column.right) for column, wide in part)
        lines = map(str.rstrip, map("  ".join, zip(*shown, strict=True)))
        rule = "─" * (sum(wide for _, wide in part) + 2 * (len(part) - 1))
        out.file.write("\n".join(itertools.chain(("", _styled(head.rstrip(), "bold", out), rule), lines)) + "\n")
    out.file.write((_styled(caption, "dim italic", out) + "\n" if caption else "") + "\n")


def _parts(columns: Sequence[Column], room: int | None) -> list[list[tuple[Column, int]]]:
    """Columns and their widths. Texts are cut, the widest first, if a line then holds all columns."""
    columns = [replace(column, cells=_safe(column.cells)) for column in columns]
    widths = [_width(column, column is columns[-1]) for column in columns]
    whole = [[*zip(columns, widths, strict=True)]]
    if room is None or (over := sum(widths) + 2 * len(widths) - 2 - room) <= 0:
        return whole
    texts = [number for number, column in enumerate(columns) if number and not column.right]
    if sum(max(0, widths[number] - MIN_WIDTH) for number in texts) >= over:
        for _ in range(over):
            widths[max(texts, key=widths.__getitem__)] -= 1
        return [[*zip(columns, widths, strict=True)]]
    parts = [whole[0][:1]]
    for column, wide in whole[0][1:]:
        wide = min(wide, max(MIN_WIDTH, room - widths[0] - 2))
        if len(parts[-1]) > 1 and sum(other + 2 for _, other in parts[-1]) + wide > room:
            parts.append(whole[0][:1])
        parts[-1].append((column, wide))
    return parts


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
