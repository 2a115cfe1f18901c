"""Answer a question over the tables of a run, or of all runs of a folder: ``autotrace sql``."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from itertools import chain, islice
from typing import Any

import click
from rich import box
from rich.table import Table

from autotrace.cli import runs, terminal
from autotrace.cli.escaping import raw
from autotrace.tables.light_imports import absent
from autotrace.tables.sql import QueryResult
from autotrace.trajectory.jsonable import jsonable

SHOWN, MOST = 200, 100_000
"""Limits the rows of a table in a terminal, and elsewhere."""
WIDTH = 80
"""Limits the characters of a cell."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Lists the beginnings of texts that spreadsheets run, also in full width."""


@click.command(no_args_is_help=True, short_help="Ask a question in SQL about the trajectories of one or all runs.")
@click.argument("words", nargs=-1, required=True, metavar="QUERY [RUN]...")
@click.option("--json", "form", flag_value="json", help="Print one JSON object a row.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV with a line of names; ' before formulas.")
def sql(words: tuple[str, ...], form: str | None) -> None:
    """Ask a question in SQL (DuckDB's), also while the run goes on.

    The tables are trajectories, chains, turns, spans, facts, tokens and metrics; `autotrace help data` lists the
    columns. The tables hold the rows of all named runs; run_id tells the runs apart.
    """
    query = next((word for word in words if " " in word.strip() and not runs.is_run(word)), words[0])
    named = [word for word in words if word is not query]
    with (
        absent("pandas"),  # pyarrow imports pandas wherever pandas is installed
        contextlib.closing(runs.reader(named)) as reader,
    ):
        with terminal.counting("trajectories read") as reader.views.progress:
            answer = reader.sql(query)
        rows = answer.each()
        if form == "json":
            for row in rows:
                sys.stdout.write(terminal.json_line(jsonable(dict(zip(answer.names, row, strict=True)))))
        elif form == "csv":
            writer = csv.writer(sys.stdout if sys.stdout.isatty() else raw(sys.stdout))
            writer.writerows([*map(_inert, row)] for row in chain([answer.names], rows))
        else:
            _show(answer, [*islice(rows, MOST + 1)])


def _show(answer: QueryResult, rows: list[tuple[Any, ...]]) -> None:
    out = terminal.console()
    shown = min(SHOWN if out.is_terminal else MOST, len(rows))
    listing = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in zip(answer.names, answer.numeric, strict=True):
        listing.add_column(terminal.line(name), justify="right" if is_number else "left", no_wrap=True)
    for row in rows[:shown]:
        listing.add_row(*(terminal.line(_cell(value)) for value in row))
    terminal.table(out, listing)
    if shown < len(rows):
        count = f"{len(rows):,}" if len(rows) <= MOST else f"more than {MOST:,}"
        out.print(terminal.line(f"{shown:,} of {count} rows; --csv or --json print all", "dim"))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(_plain(value))
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _inert(value: Any) -> Any:
    """Return the plain value of a cell; ``'`` comes before a text that a spreadsheet would run as a formula."""
    value = _plain(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _plain(value: Any) -> Any:
    """Return the plain value of a cell."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value
