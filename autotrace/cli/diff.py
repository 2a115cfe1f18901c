"""Compare two runs, or two steps of a run: ``autotrace diff``."""

from __future__ import annotations

import contextlib
from functools import partial

import click

from autotrace.cli import runs, terminal
from autotrace.cli.terminal import line
from autotrace.insight.rollouts import Rollouts
from autotrace.run.info import is_there
from autotrace.tables.two_runs import Side, compared


@click.command(short_help="Compare two runs: settings, metrics, prompts, findings, and the first difference.")
@click.argument("first", metavar="RUN[@STEP]")
@click.argument("second", metavar="RUN[@STEP]")
@terminal.json_option("Print one JSON object.")
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare two runs, or two steps: show the first difference in causal order, and the traits that carry it.

    Each side is a run, or a step of a run (RUN@100), recorded by autotrace or saved by another tool. Changes are those
    of the second side against the first.
    """
    table = Rollouts()
    with contextlib.ExitStack() as stack:
        a, b = (_side(name, table, stack) for name in (first, second))
        found = compared(a, b, table)
    out = terminal.console()
    if as_json:
        out.file.write(terminal.json_line(found.as_dict()))
        return
    for text, traces in found.lines():
        ids = " ".join(["", *(trace[:12] for _, trace in traces)])
        out.print(line(text + ids, "bold" if text[:1] != " " else ""), soft_wrap=True)


def _side(name: str, table: Rollouts, stack: contextlib.ExitStack) -> Side:
    """Open the run, and the step if the name ends in ``@STEP``."""
    run, _, number = name.rpartition("@")
    step = int(number) if run and number.isdecimal() and not is_there(name) else None
    reader = stack.enter_context(contextlib.closing(runs.reader_of_one([name if step is None else run])))
    return Side(name, reader, table, step, partial(terminal.shown, what="trajectories examined"))
