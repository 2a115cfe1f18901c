"""Say what is wrong with a run, most costly first: ``autotrace diagnose``."""

from __future__ import annotations

import contextlib
import shlex
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
from autotrace.insight.finding import Finding, Location
from autotrace.insight.needs import checked, sentence
from autotrace.insight.why import headline
from autotrace.insight.words import amount, facts, percent, prose, verdict, where
from autotrace.run.losses import losses
from autotrace.run.status import Status
from autotrace.tables.steps import steps


@click.command(short_help="Say what is wrong with a run: findings, most costly first.")
@runs.argument
@click.option("--step", type=int, metavar="N", help="Only this training step.")
@click.option(
    "--gpus", type=click.IntRange(1), metavar="N", help="Print costs in hours of N GPUs; default: the trainer's."
)
@click.option("--code", "codes", multiple=True, metavar="AT-...", callback=lambda _, __, given: _known(given),
              help="Only this finding, with all its places; repeatable.")  # fmt: skip
@terminal.json_option('Print one JSON object a finding; one with "code": null if nothing is found.')
def diagnose(named: tuple[str, ...], step: int | None, gpus: int | None, codes: Sequence[str], as_json: bool) -> None:
    """Say what is wrong with a run: the number of trajectories, the first step, places, likely causes, and remedies.

    Each finding has a code. `autotrace help CODE` prints the page of a finding.
    """
    out = terminal.console()
    with contextlib.closing(runs.reader_of_one(named)) as reader:
        status = reader.run.status()
        gaps = incomplete(status, reader.run.living)
        for gap in gaps:
            terminal.console(stderr=as_json).print(line(f"! {gap}", "bold red"), soft_wrap=True)
        diagnosis = Diagnosis(codes)
        for each in steps(reader, step, partial(terminal.shown, what="trajectories examined"), texts=True):
            diagnosis.add(each)
            gpus = gpus or each.settings.gpus
    for detector in registry.own():
        if detector.problem:
            words = f"! the detector {detector.name} of another package cannot be used: {detector.problem}"
            terminal.console(stderr=True).print(line(words, "yellow"), soft_wrap=True)
    if step is not None and not diagnosis.numbers:
        raise terminal.fail(f"there is no trajectory of step {step}; autotrace steps lists the steps")
    found = [finding for finding in diagnosis.findings() if not codes or finding.code in codes]
    if not as_json:
        print_findings(out, diagnosis, found, bool(gaps), gpus, " ".join(map(shlex.quote, named)))
        return
    ran, missing = checked(registry.codes(), diagnosis.present)
    nothing = {
        "code": None, "title": NOTHING, "trajectories": 0, "of": diagnosis.trajectories, "checks": ran,
        "not_checked": missing, "incomplete": gaps,
    }  # fmt: skip
    out.file.writelines(map(terminal.json_line, [finding.as_dict() for finding in found] or [nothing]))


NOTHING = "no problems found"
COSTS = "costs: the affected share of the run, weighted by how much of a trajectory such a fault spoils"


def incomplete(status: Status, living: bool) -> list[str]:
    """List the records that processes dropped, and the records that cannot be judged."""
    said = losses(status.drops)
    if status.torn:
        said.append(f"{status.torn:,} bytes at the ends of files are not complete records")
    said += [f"{count:,} records could not be used: {reason}" for reason, count in status.skipped.items()]
    if status.unread_bytes and not living:
        said.append(f"{status.unread_bytes:,} bytes are not read yet; read them: autotrace ship {status.run_id}")
    if status.traces and not status.processes:
        said.append("no process of this run is known")
    return said


def _known(given: Sequence[str]) -> tuple[str, ...]:
    try:
        return registry.chosen(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def print_findings(
    out: Console, diagnosis: Diagnosis, found: Sequence[Finding], has_gaps: bool, gpus: int | None, run: str = ""
) -> None:
    """Print the findings. ``run``: the run as commands name it; without a name the newest run."""
    whole = f"{counted(diagnosis.trajectories, 'trajectory')} in {counted(len(diagnosis.numbers), 'step')}"
    without = diagnosis.without_turns
    if without and without < diagnosis.trajectories:
        out.print(line(f"! {without:,} of {whole} without an LLM call", "yellow"), soft_wrap=True)
    if not found:
        out.print(line(verdict(diagnosis, has_gaps)), soft_wrap=True)
        return
    heads = [finding for finding in found if not finding.under]
    first = next(
        (f": autotrace show {place.trace_id[:12]} {run}".rstrip() for place in heads[0].places if place.trace_id), ""
    )
    start = f"start with {heads[0].code}, {percent(heads[0].cost)} of the run{first}"
    out.print(line(f"{whole}: {counted(len(found), 'finding')}; {start}"), soft_wrap=True)
    below = {head.code: [one for one in found if one.under == head.code] for head in heads}
    for number, finding in enumerate(heads, 1):
        out.print(Text(""))
        head = line(f"{number}. {finding.code}", "bold red") + line(f"  {finding.title}", "bold")
        out.print(head, soft_wrap=not out.is_terminal)
        (affects, much), *rest = facts(finding)
        effects = [("causes", _below(one)) for one in below[finding.code]]
        for name, words in ((affects, f"{much}{cost(finding, diagnosis, gpus, bool(effects))}"), *effects, *rest):
            _print(out, name, line(words))
        for place in finding.places:
            _print(out, "e.g.", _place(place))
        for name, words in prose(finding):
            _print(out, name, line(words))
    checks = sentence(registry.codes(), diagnosis.present)
    out.print(line(f"\n{checks}".strip(), "dim"), soft_wrap=True)
    out.print(line(COSTS, "dim"), soft_wrap=True)


def cost(finding: Finding, diagnosis: Diagnosis, gpus: int | None, has_effects: bool = False) -> str:
    """Describe the cost that determines the order: ``; costs 12% of the run, 3.1 GPU-hours``."""
    effects = " with its consequences" if has_effects else ""
    hours = f", {finding.cost * diagnosis.wall_s / 3600 * gpus:.3g} GPU-hours" if gpus else ""
    return f"; costs {percent(finding.cost)} of the run{effects}{hours}"


def _print(out: Console, name: str, words: Text) -> None:
    """Print a named line; in a terminal, a long line continues below the first word."""
    head = Text(f"   {name:15}", style="dim")
    if out.is_terminal:
        row = Table.grid()
        row.add_row(head, words)
        out.print(row)
    else:
        out.print(head + words, soft_wrap=True)


def _below(finding: Finding) -> str:
    """Describe a consequence, with the first trait that explains the consequence."""
    said = f"{finding.code}  {finding.title}: {amount(finding)}"
    answer = finding.answer
    return f"{said}; {headline(answer.causes[0], answer.other)}" if answer and answer.causes else said


def _place(place: Location) -> Text:
    text = Text(place.trace_id[:12], style="cyan") + Text(f"  {where(place)}".rstrip())
    return text + line(f"  {place.note}".rstrip(), "dim")
