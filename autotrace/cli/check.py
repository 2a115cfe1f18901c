"""Resolve each target in the installed packages, before a run finds a missing target: ``autotrace check``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from autotrace.cli import terminal
from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.config.plan import Target
from autotrace.spec import names, verdict
from autotrace.spec.compiler import compile_plan, without_entry
from autotrace.spec.document import SpecError
from autotrace.spec.drafts import shown
from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Archive, Installed, folders_of
from autotrace.spec.verdict import Verdict

_MARKS = {
    verdict.RESOLVES: ("ok  ", "green"),
    verdict.SKIPPED: ("skip", "dim"),
    verdict.UNCLEAR: ("?   ", "yellow"),
    verdict.MISSING: ("MISS", "red"),
    verdict.REFUSED: ("REFUSED", "red"),
}


@click.command(short_help="Show where each target of a spec is found, before the run.")
@click.argument("files", nargs=-1, metavar="[FILES]...", type=click.Path())
@click.option("--wheel", "archive", metavar="FILE", type=click.Path(path_type=Path),
              help="Check against this wheel or source distribution instead of what is installed.")  # fmt: skip
@terminal.json_option("Print one JSON object instead of lines.")
def check(files: tuple[str, ...], archive: Path | None, as_json: bool) -> None:
    """Show where every target of FILES is found. Without FILES, check the shipped specs and $AUTOTRACE_SPECS.

    Source text is read, and nothing is imported. Exit code 1: a target that is not optional is not found or cannot
    be wrapped, or a key names no argument; 2: a spec cannot be read.
    """
    # the program is often in the folder of the spec
    folders = [folder for name in files for folder in folders_of(os.path.dirname(os.path.abspath(name)))]
    try:
        source: Installed = Installed(beside=folders) if archive is None else Archive(archive)
    except (OSError, ValueError) as error:
        raise terminal.fail(error) from error
    given = list(files) or [name for name in os.environ.get(env.SPECS, "").split(os.pathsep) if name]
    try:
        plan = compile_plan(given)
    except SpecError as error:
        for problem in error.problems:
            click.echo(terminal.safe(problem), err=True)
        raise click.exceptions.Exit(exit_codes.USAGE) from error
    for sentence in without_entry(given):
        click.echo(f"autotrace: {terminal.safe(sentence)}", err=True)
    own = {target.key for target in plan.targets if not target.is_shipped}
    absent = "is not installed" if archive is None else f"is not in {archive.name}"
    wanted = {shown(Path(name)) for name in files}
    only = [target for target in plan.targets if not files or _file(target) in wanted]
    expected = own if archive is None else frozenset()
    verdicts = verdict.judge(plan, Resolver(source), expected=expected, absent=absent, only=only)
    _print_json(verdicts) if as_json else _print(verdicts, source)
    if any(judged.failed for judged in verdicts):
        raise click.exceptions.Exit(exit_codes.FAILED)


def _file(target: Target) -> str:
    return target.where.rpartition(":")[0]


def _file_of(judged: Verdict) -> str:
    return _file(judged.target)


def _print(verdicts: Sequence[Verdict], source: Installed) -> None:
    out = terminal.console()
    for file, grouped in groupby(sorted(verdicts, key=_file_of), _file_of):
        of_file = list(grouped)
        out.print(Text(file, style="bold"), soft_wrap=True)
        absent = Counter(names.top(one.name) for one in of_file if one.library_absent)
        for library, count in absent.items():
            skipped = f"  skip  {library} {of_file[0].reason} ({terminal.counted(count, 'target')})"
            out.print(Text(skipped, style="dim"), soft_wrap=True)
        for judged in of_file:
            if not judged.library_absent:
                _print_one(out, judged)
    counts = {state: sum(one.state == state for one in verdicts) for state in _MARKS}
    found = terminal.counted(counts.pop(verdict.RESOLVES), "target") + " found"
    summary = [found, *(f"{count} {state}" for state, count in counts.items() if count)] if verdicts else []
    out.print(", ".join(summary) or "no targets")
    for library in sorted({names.top(one.name) for one in verdicts}):
        mine = [one for one in verdicts if names.top(one.name) == library]
        version = source.version(library)
        if version is not None and mine and all(one.state == verdict.SKIPPED for one in mine):
            ranges = sorted({one.target.versions for one in mine if one.target.versions})
            text = f"nothing of {library} {version} will be traced: the targets are for {', '.join(ranges)}"
            out.print(Text(text, style="yellow"), soft_wrap=True)


def _print_one(out: Console, judged: Verdict) -> None:
    mark, style = _MARKS[judged.state]
    if judged.state == verdict.MISSING and judged.target.optional:
        mark, style = "none", "dim"
    text = Text.assemble("  ", (mark, style), "  ", terminal.safe(judged.name))
    line = judged.target.where.rpartition(":")[2]
    if judged.state == verdict.RESOLVES and judged.count == 1 and judged.description is not None:
        text.append(f"  {_described(judged)}", style="dim")
    elif judged.state == verdict.RESOLVES:
        text.append(f"  {terminal.counted(judged.count, 'function')}", style="dim")
    elif judged.state == verdict.SKIPPED:
        text.append(f"  {judged.reason}", style="dim")
    out.print(text, soft_wrap=True)
    if judged.reason and judged.state != verdict.SKIPPED:
        out.print(Text(f"        line {line}: {terminal.safe(judged.reason)}", style=style), soft_wrap=True)
    for kind, said, style in [("note", judged.notes, "yellow"), ("mistake", judged.mistakes, "red")]:
        for sentence in said:
            where = f"{kind}, line {judged.place(sentence).rpartition(':')[2]}"
            out.print(Text(f"        {where}: {terminal.safe(sentence)}", style=style), soft_wrap=True)


def _described(judged: Verdict) -> str:
    """Describe a function: ``async function (self, prompt), verl>=0.5, name 2 of 3, defined in ...``"""
    function = judged.description
    assert function is not None
    parts = [f"{function.binding} {function.kind}".strip() + f" ({', '.join(function.arguments)})"]
    if judged.target.versions:
        parts.append(judged.target.versions)
    if len(judged.target.names) > 1:
        parts.append(f"name {judged.target.names.index(judged.name) + 1} of {len(judged.target.names)}")
    if function.dotted and function.dotted != judged.name.replace(":", "."):
        parts.append(f"defined as {function.dotted}")
    return ", ".join(parts)


def _print_json(verdicts: Sequence[Verdict]) -> None:
    def row(judged: Verdict) -> dict[str, Any]:
        function = judged.description
        return {
            "target": judged.target.key,
            "where": judged.target.where,
            "state": judged.state,
            "failed": judged.failed,
            "name": judged.name,
            "versions": judged.target.versions,
            "optional": judged.target.optional,
            "reason": judged.reason,
            "notes": list(judged.notes),
            "mistakes": list(judged.mistakes),
            "functions": judged.count if judged.state == verdict.RESOLVES else 0,
            "kind": function.kind if function else None,
            "binding": function.binding if function else None,
            "arguments": list(function.arguments) if function else None,
            "defined": function.dotted if function else None,
            "place": function.location if function else None,
        }

    click.echo(json.dumps({"targets": [row(judged) for judged in verdicts]}, indent=2))
