"""Print tables and trees of many rows: ``autotrace ls``, ``ls --tree`` (steps, prompts, rollouts, calls), times.

Tables are printed quickly: rich takes 5 ms of CPU a row, and a run has 100,000. The tables look like rich's tables.
Each cell is a single line, and is made safe here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from autotrace.cli.terminal import STATUS_STYLE, counted, line, one_line, seconds, status_text, width
from autotrace.tables.errors import NotFound
from autotrace.tables.reader import Reader
from autotrace.trajectory.durations import PARTS, Times
from autotrace.trajectory.model import Span, above

MAX_WIDTH = 60
"""Width of the widest column, except for the last column."""
MIN_WIDTH = 12
"""Width of the narrowest text column, however narrow the terminal is."""


@dataclass(frozen=True)
class Cells:
    """Describes a printed column: the name and the text of each row."""

    name: str
    cells: Sequence[str]
    right: bool = False
    styles: Callable[[int], str] | None = None
    """Maps a row's number to the style of the cell, in rich's notation; only called on a terminal."""

    @classmethod
    def of(
        cls, name: str, rows: Sequence[Any], shown: Callable[[Any], object], right: bool = False,
        style: Callable[[Any], str] | None = None,
    ) -> Cells:  # fmt: skip
        """Build a cell for each of ``rows`` with ``shown``; the cell of None is empty."""
        cells = ["" if (value := shown(row)) is None else str(value) for row in rows]
        return cls(name, cells, right, None if style is None else lambda number: style(rows[number]))


def aligned(values: Sequence[float | None]) -> list[str]:
    """Format numbers with four significant digits, so that the decimal points of right-aligned cells are aligned."""
    texts = ["" if value is None else f"{value:.4g}" for value in values]
    rests = [len(text) - len(text.partition(".")[0]) for text in texts]
    widest = max(rests, default=0)
    return [text and text + " " * (widest - rest) for text, rest in zip(texts, rests, strict=True)]


def show(out: Console, columns: Sequence[Cells], caption: str = "", *, whole: bool = False) -> None:
    """Print the table. A table that is too wide is printed in several parts with the same first column; ``whole``: even
    if cutting texts would make the table fit."""
    room = width(out)
    for part in _parts(columns, room and room - out.is_terminal, whole):
        shown = [_fitted(column, wide, out) for column, wide in part[:-1]]
        shown.append(_fitted(part[-1][0], part[-1][1], out, is_last=True))
        head = "  ".join(_padded(column.name, wide, column.right) for column, wide in part)
        lines = map(str.rstrip, map("  ".join, zip(*shown, strict=True)))
        rule = "─" * (sum(wide for _, wide in part) + 2 * (len(part) - 1))
        out.file.write("\n".join(itertools.chain(("", _styled(head.rstrip(), "bold", out), rule), lines)) + "\n")
    out.file.write((_styled(caption, "dim italic", out) + "\n" if caption else "") + "\n")


def _parts(columns: Sequence[Cells], room: int | None, uncut: bool) -> list[list[tuple[Cells, int]]]:
    """Split columns into parts, with widths. Unless ``uncut``, texts are cut, the widest first, if a line then holds
    all columns."""
    columns = [replace(column, cells=_safe(column.cells)) for column in columns]
    widths = [_width(column, uncut or column is columns[-1]) for column in columns]
    whole = [[*zip(columns, widths, strict=True)]]
    if room is None or (over := sum(widths) + 2 * len(widths) - 2 - room) <= 0:
        return whole
    texts = [number for number, column in enumerate(columns) if number and not column.right]
    if not uncut and sum(max(0, widths[number] - MIN_WIDTH) for number in texts) >= over:
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
    """Put each cell on one line. All cells are checked at once, because few runs have a cell to change."""
    return cells if "".join(cells).isprintable() else list(map(one_line, cells))


def _width(column: Cells, whole: bool) -> int:
    plain = all(map(str.isascii, column.cells))
    widest = max(map(len if plain else cell_len, column.cells), default=0)
    return max(cell_len(column.name), widest if whole else min(widest, MAX_WIDTH))


def _fitted(column: Cells, width: int, out: Console, is_last: bool = False) -> list[str]:
    """Return the cells, each ``width`` wide, with styles; the cells of the last column end with their text."""
    cells = column.cells
    if all(map(str.isascii, cells)) and max(map(len, cells), default=0) <= width:
        fitted = [cell.rjust(width) for cell in cells] if column.right else [cell.ljust(width) for cell in cells]
    else:
        fitted = [_padded(cell, width, column.right) for cell in cells]
    if is_last:
        fitted = list(map(str.rstrip, fitted))
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


ID_LENGTH = 12
"""Characters shown of a trace id; ``autotrace show`` takes any unique beginning."""
SHORTEST = 8
"""Least number of characters shown of a run's name: a date."""


def called(reader: Reader) -> tuple[str, Callable[[Any], str]]:
    """Return the head of a list's first column, and the function that makes the cell of a row: the id's beginning.

    With several runs, the cell begins with the run's name, cut to the shortest unique length.
    """
    names = {source.info.run_id for source in reader.sources}
    if len(names) == 1:
        return "trace", lambda row: row.trace_id[:ID_LENGTH]
    wide = next(wide for wide in itertools.count(SHORTEST) if len({name[:wide] for name in names}) == len(names))
    return f"{'run_id':{wide}}  trace", lambda row: f"{row.run_id[:wide]:{wide}}  {row.trace_id[:ID_LENGTH]}"


TIME_LEGEND = (
    "queue: waiting for the engine; prefill, decode: the engine at work; way: router, Ray, HTTP; "
    "llm: calls of a model whose engine is not traced; "
    "other: the agent's own work and waiting"
)


def time_columns(rows: Sequence[Any], reader: Reader) -> list[Cells]:
    """Build a line for each trajectory with the duration split up; empty parts are left out."""
    head, shown = called(reader)
    parts = [Cells(_part(name), [duration(getattr(row, name)) for row in rows], True) for name in PARTS]
    return [
        Cells.of(head, rows, shown),
        *figures(rows, step="step", sample="sample_index", n="rollout_n", turns="llm_calls"),
        Cells.of("duration", rows, lambda row: duration(row.duration_s), True),
        *(column for column in parts if any(column.cells)),
        status_column(rows),
    ]


def figures(rows: Sequence[Any], **fields: str) -> list[Cells]:
    """Build a right-aligned column for each of ``fields``: the column's name, and the rows' field."""
    return [Cells.of(name, rows, attrgetter(field), True) for name, field in fields.items()]


def status_column(rows: Sequence[Any]) -> Cells:
    """Build the column of statuses, in colours."""
    return Cells.of("status", rows, attrgetter("status"), style=lambda row: STATUS_STYLE.get(row.status, ""))


def time_sentence(times: Times) -> str:
    """Describe the times: ``decode 8.2 s, tool 3.1 s, ...``, the largest first, without parts that took no time."""
    parts = sorted(((value, _part(name)) for name, value in times.measured().items() if value >= 0.0005), reverse=True)
    return ", ".join(f"{name} {duration(value)}" for value, name in parts)


def _part(field: str) -> str:
    """Return the printed name of a field of ``Times``."""
    return field.removesuffix("_s")


def duration(value: float | None) -> str:
    """Format seconds in readable units; empty for None."""
    return "" if value is None else seconds(round(value * 1e9))


SHOWN_ROLES = ("llm", "tool", "env")


def overview(rows: Sequence[Any], reader: Reader) -> Tree:
    """Build a tree of ``rows`` in order, below the run, step and prompt of each row."""
    top = Tree("", guide_style="dim", hide_root=True)
    branches: dict[object, Tree] = {}
    for row in rows:
        step, prompt = (row.run_id, row.validate, row.step), (row.run_id, row.validate, row.group_id)
        if row.run_id not in branches:
            branches[row.run_id] = top.add(Text(row.run_id, style="bold"))
        if step not in branches:
            branches[step] = branches[row.run_id].add(_step(row))
        if prompt not in branches:
            branches[prompt] = branches[step].add(_prompt(row))
        _add_calls(branches[prompt].add(_rollout(row)), reader, row)
    return top


def _step(row: Any) -> Text:
    name = "no step" if row.step is None else f"step {row.step}"
    return line(f"{name}  validation" if row.validate else name, "bold")


def _prompt(row: Any) -> Text:
    return line("prompt " + (row.sample_index or "?"), "bold") + line(f"  {row.uid}" if row.uid else "", "dim")


def _rollout(row: Any) -> Text:
    number = "" if row.rollout_n is None else f"rollout {row.rollout_n}  "
    text = Text(f"{number}{row.trace_id[:12]}")
    text += Text("" if row.reward is None else f"  reward {row.reward:.4g}", style="green")
    text += Text(f"  {counted(row.llm_calls or 0, 'turn')}  {duration(row.duration_s)}", style="dim")
    return text if row.status == "OK" else text + Text("  ") + status_text(row.status)


def _add_calls(tree: Tree, reader: Reader, row: Any) -> None:
    """Add the LLM and tool calls of a trajectory, below calls that a spec gives a name (a node of a graph); of nested
    tools, add the outer tool."""
    try:
        spans = reader.one(row, texts=False).by_id
    except NotFound:
        return
    trees: dict[str | None, Tree] = {}
    for span in spans.values():  # a call comes before the calls below
        outer = trees.get(span.parent_id, tree)
        inside = above(span, spans, (span.role,)) is not None
        named = span.title is not None and span.parent_id in spans
        shown = not inside if span.role in SHOWN_ROLES else named
        trees[span.span_id] = outer.add(_call(span)) if shown else outer


def _call(span: Span) -> Text:
    style = {"llm": "cyan", "agent": "", "span": ""}.get(span.role, "magenta")
    counts = [span.prompt_tokens, span.response_tokens]
    tokens = ""
    if span.role == "llm" and counts != [None, None]:
        tokens = f"  {' + '.join('?' if count is None else str(count) for count in counts)} tokens"
    text = line(span.shown_name, style) + line(f"{tokens}  {seconds(span.duration_ns)}", "dim")
    return text if span.status == "OK" else text + Text("  ") + status_text(span.status)
