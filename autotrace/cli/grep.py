"""Find the places of a phrase: ``autotrace grep``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.text import Text

from autotrace.cli import listing, runs, terminal
from autotrace.cli.terminal import counted, line, one_line
from autotrace.config import exit_codes
from autotrace.tables import search
from autotrace.tables.search import Match
from autotrace.trajectory.span_text import answered_ids, asked_ids

MOST = 1000
"""Limits the places shown without ``--limit``."""
MAX_MATCH = 200
"""Limits the characters shown of a match."""


@click.command(short_help="Find a phrase in texts, tool arguments and results.")
@click.argument("pattern")
@runs.argument
@runs.options
@click.option("--role", "roles", multiple=True, type=click.Choice(search.ROLES),
              help="Only in answers, in prompts, or in tool calls; repeatable.")  # fmt: skip
@click.option("--fixed", "-F", is_flag=True, help="PATTERN is plain text.")
@click.option("--ignore-case", "-i", is_flag=True, help="Ignore case.")
@click.option("--count", "-c", "only_count", is_flag=True, help="Print how many places each trajectory has.")
@click.option("--limit", type=click.IntRange(min=1), default=MOST, metavar="N", show_default=True,
              help="Stop after this many places.")  # fmt: skip
@terminal.json_option("Print one JSON object a place.")
def grep(
    pattern: str, named: Sequence[str], selection: runs.Selection, roles: Sequence[str], fixed: bool, ignore_case: bool,
    only_count: bool, limit: int, as_json: bool,
) -> None:  # fmt: skip
    """Find PATTERN (a regular expression) in prompts, answers, tool calls and their results. Exit code 1: no match."""
    try:
        compiled = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
    except Exception as error:  # re.error, OverflowError, RecursionError, ValueError
        raise terminal.fail(f"{pattern!r} is not a regular expression: {error}; -F searches for it as text") from None
    out, err = terminal.console(), terminal.console(stderr=True)
    places = trajectories = unread = 0
    with contextlib.closing(runs.reader(named)) as reader:
        rows = reader.select(selection.condition, ("run_id", "trace_id", "step"))
        _, called = listing.called(reader)
        possible = search.candidates(reader, rows, compiled)
        for row, one in reader.each(terminal.shown(possible, "trajectories searched")):
            if one is None:
                continue
            matches = list(search.search(one, compiled, frozenset(roles or search.ROLES)))[: limit - places]
            places += len(matches)
            trajectories += bool(matches)
            unread += any(asked_ids(span) or answered_ids(span) for span in one.llm_spans)
            if as_json:
                out.file.writelines(terminal.json_line({**row._asdict(), **asdict(match)}) for match in matches)
            elif only_count and matches:
                out.print(Text(f"{called(row)}  {len(matches):,}"))
            else:
                for match in [] if only_count else matches:
                    out.print(_line(called(row), row.step, match), soft_wrap=True)
            if places >= limit:
                err.print(line(f"stopped after {counted(places, 'place')}; --limit shows more"))
                break
    if unread:
        many = counted(unread, "trajectory has", "trajectories have")
        remedy = "name their tokenizer with autotrace ship RUN --tokenizer NAME"
        err.print(line(f"{many} token ids that were not decoded and not searched: {remedy}"), soft_wrap=True)
    if not places:
        err.print(line(f"{pattern!r} occurs in none of {counted(len(rows), 'trajectory')}"), soft_wrap=True)
        raise click.exceptions.Exit(exit_codes.FAILED)
    if not as_json:
        found = f"{counted(places, 'place')} in {counted(trajectories, 'trajectory')}"
        out.print(Text(found, style="dim"))


def _line(called: str, step: int | None, match: Match) -> Text:
    where = [f"step {step}"] if step is not None else []
    where += [f"turn {match.turn}"] if match.turn is not None else []
    text = Text(called, style="cyan") + Text(f"  {', '.join([*where, one_line(match.where)])}  ", style="dim")
    matched = match.text if len(match.text) <= MAX_MATCH else match.text[:MAX_MATCH] + "…"
    return text + Text(one_line(match.before)) + Text(one_line(matched), style="bold red") + Text(one_line(match.after))
