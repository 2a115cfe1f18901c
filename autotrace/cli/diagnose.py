"""``autotrace diagnose``: what is wrong with a run, most costly first."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotrace.cli import runs, terminal
from autotrace.cli.terminal import counted, line
from autotrace.insight import registry
from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.finding import Finding, Place
from autotrace.insight.words import lines, where
from autotrace.run.losses import losses
from autotrace.tables.steps import steps


@click.command(short_help="Say what is wrong with a run: findings, most costly first.")
@runs.argument
@click.option("--step", type=int, metavar="N", help="Only this training step.")
@click.option("--code", "codes", multiple=True, metavar="AT-...", callback=lambda _, __, given: _known(given),
              help="Only this finding, with all its places; repeatable.")  # fmt: skip
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Print one JSON object a finding; one with "code": null if nothing is found.',
)
def diagnose(named: tuple[str, ...], step: int | None, codes: Sequence[str], as_json: bool) -> None:
    """Say what is wrong with a run: how many trajectories, since when, where, what may cause it, and what to try.

    Each finding has a code. `autotrace help CODE` prints its page.
    """
    out = terminal.console()
    with contextlib.closing(runs.reader_of_one(named)) as reader:
        for loss in losses(reader.run.status().drops):
            terminal.console(stderr=as_json).print(line(f"! {loss}", "bold red"), soft_wrap=True)
        diagnosis = Diagnosis(codes)
        for each in steps(reader, step, partial(terminal.shown, what="trajectories examined"), texts=True):
            diagnosis.add(each)
    for detector in registry.own():
        if detector.problem:
            words = f"! the detector {detector.name} of another package cannot be used: {detector.problem}"
            terminal.console(stderr=True).print(line(words, "yellow"), soft_wrap=True)
    if step is not None and not diagnosis.trajectories:
        raise terminal.fail(f"there is no trajectory of step {step}; autotrace steps lists the steps")
    found = [finding for finding in diagnosis.findings() if not codes or finding.code in codes]
    if not as_json:
        print_findings(out, diagnosis, found)
        return
    nothing = {"code": None, "title": "nothing found", "trajectories": 0, "of": diagnosis.trajectories}
    out.file.writelines(map(terminal.json_line, [finding.as_dict() for finding in found] or [nothing]))


def _known(given: Sequence[str]) -> tuple[str, ...]:
    try:
        return registry.chosen(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def print_findings(out: Console, diagnosis: Diagnosis, found: Sequence[Finding]) -> None:
    """What the command prints."""
    whole = f"{counted(diagnosis.trajectories, 'trajectory')} in {counted(len(diagnosis.numbers), 'step')}"
    if not found:
        out.print(Text(f"{whole}: nothing found" if diagnosis.trajectories else "this run has no trajectory"))
        return
    out.print(Text(f"{whole}: {counted(len(found), 'finding')}, most costly first"))
    for number, finding in enumerate(found, 1):
        out.print(Text(""))
        head = line(f"{number}. {finding.code}", "bold red") + line(f"  {finding.title}", "bold")
        out.print(head, soft_wrap=not out.is_terminal)
        for name, words in lines(finding):
            _print(out, name, line(words))
        for place in finding.places:
            _print(out, "where", _place(place))


def _print(out: Console, name: str, words: Text) -> None:
    """In a terminal, what does not fit goes on below the first word."""
    head = Text(f"   {name:7}", style="dim")
    if out.is_terminal:
        row = Table.grid()
        row.add_row(head, words)
        out.print(row)
    else:
        out.print(head + words, soft_wrap=True)


def _place(place: Place) -> Text:
    text = Text(place.trace_id[:12], style="cyan") + Text(f"  {where(place)}".rstrip())
    return text + line(f"  {place.note}".rstrip(), "dim")
