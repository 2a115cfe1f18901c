"""Choose the run of a command, and the trajectories, with the same options everywhere. See ``docs/commands.md``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from autotrace.cli.terminal import fail, safe
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import find_runs, is_there
from autotrace.ship.readers import opened, places
from autotrace.tables.conditions import Condition, condition, equals, has_status
from autotrace.tables.reader import Reader
from autotrace.tables.runs import Runs
from autotrace.tables.sources import ReadableRun
from autotrace.tables.storage import is_url
from autotrace.tables.words import STATUSES

argument = click.argument("named", nargs=-1, metavar="[RUN]...")
"""Takes run folders, folders of runs, names of runs, folders of tables, files of lines, or anything that ``autotrace
open`` takes; default: the newest run."""
MOST = 5
"""Limits the other runs that are named."""


def reader(named: Sequence[str]) -> Reader:
    """Open all named runs as a single reader. Raises as ``locate``."""
    kept: dict[str, ReadableRun] = {}
    for place in [place for run in named or (None,) for place in runs_at(run)]:
        first = kept.setdefault(place.info.run_id, place)
        if first is not place and first.path.resolve() != place.path.resolve():
            click.echo(f"autotrace: {safe(place.path)} is left out: another run has the same name", err=True)
    return _with_problems(Runs(list(kept.values())).reader())


def reader_of_one(named: Sequence[str]) -> Reader:
    """Open the named run; of a folder of several runs the newest, with a message. Raises as ``locate`` and ``only``."""
    *others, newest = runs_at(only(named))
    if others:
        names = ", ".join(place.info.run_id for place in others[: -MOST - 1 : -1])
        said = f"this reads {newest.info.run_id}, the newest of {len(others) + 1} runs in {named[0]}; older: {names}"
        _say(said)
    return _with_problems(opened(newest))


def _say(said: str) -> None:
    """Print a sentence on stderr, unless this command has printed the sentence already."""
    context = click.get_current_context(silent=True)
    told: set[str] = set() if context is None else context.meta.setdefault("told", set())
    if said and said not in told:
        click.echo(f"autotrace: {safe(said)}", err=True)
    told.add(said)


def _with_problems(reader: Reader) -> Reader:
    """Return ``reader``, once the reader's problems were printed. A command prints each problem once."""
    for source in reader.sources:
        _say(source.problem)
    return reader


def only(named: Sequence[str]) -> str | None:
    """Return the only named run, if any. Raises ``click.exceptions.Exit`` after one line on stderr."""
    if len(named) > 1:
        raise fail(f"this is about one run, and {len(named)} are named: {', '.join(named)}; name one")
    return named[0] if named else None


def runs_at(run: str | None) -> list[ReadableRun]:
    """List the runs at a path, oldest first, or the run that ``locate`` finds. Raises as ``locate``."""
    if run is None or not (is_url(run) or is_there(run)):
        return places(locate(run))
    problems: list[Exception] = []
    found = places(run, problems)
    for problem in problems:
        click.echo(f"autotrace: {safe(problem)}", err=True)
    return found


def locate(run: str | None) -> Path:
    """Find the folder of ``run``: a path, a name (or its beginning) below the run directory, or None for the newest.

    A folder of several runs means the newest run. Raises ``click.exceptions.Exit`` after one line on stderr,
    ``OSError`` and ``QueryError`` with a sentence.
    """
    found, closed = find_runs(chosen(run))
    problems: dict[Path, OSError] = {**closed}
    for newest in reversed(found):
        try:
            places(newest)
            break
        except OSError as error:
            problems[newest] = error
    else:
        raise problems[found[-1]]
    for path, problem in problems.items():
        if path in found or path.name > newest.name:
            click.echo(f"autotrace: {safe(problem)}; the newest that can be read is {safe(newest.name)}", err=True)
    return newest


def is_run(word: str) -> bool:
    """Tell whether ``word`` is a run and not the beginning of a trace id: a path, an address, or a name with a
    hyphen."""
    return is_url(word) or is_there(word) or ("-" in word and " " not in word)


def chosen(run: str | None) -> Path:
    """Return an existing path. Raises as ``locate``."""
    parent = Path(os.environ.get(env.RUN_DIR) or layout.DEFAULT_RUN_DIR)
    if run is None:
        inside = os.environ.get(env.RUN_FOLDER)
        chosen = Path(inside) if inside and os.path.isdir(inside) else parent
        if not is_there(chosen):
            raise fail(
                f"{parent} does not exist, so there is no newest run; name a run folder, or start a run with "
                "autotrace-run"
            )
        return chosen
    if is_there(run):
        return Path(run)
    if os.sep in run:
        raise fail(f"{run}: no such folder")
    try:
        found, closed = find_runs(parent)
    except FileNotFoundError:
        found, closed = [], {}
    named = [path for path in found if path.name.startswith(run)]
    if len(named) == 1:
        return named[0]
    if not named and (error := next((closed[path] for path in closed if path.name.startswith(run)), None)):
        raise error
    if named:
        newest = ", ".join(path.name for path in named[: -MOST - 1 : -1])
        raise fail(f"{run}: {len(named)} runs in {parent} begin with {run!r}; the newest are {newest}")
    raise fail(f"{run}: no such folder, and no such run in {parent}")


@dataclass(frozen=True)
class Selection:
    """Holds the values of ``options``."""

    step: int | None = None
    sample: str | None = None
    statuses: tuple[str, ...] = ()
    validate: bool | None = None
    where: tuple[str, ...] = ()

    @property
    def condition(self) -> Condition:
        """Return all conditions together. Raises ``WhereError``."""
        together = equals(step=self.step, sample_index=self.sample) & has_status(self.statuses)
        if self.validate is not None:
            together &= condition("validate" if self.validate else "not validate")
        for expression in self.where:
            together &= condition(expression)
        return together

    def nothing(self, reader: Reader) -> str:
        """Say why no trajectory of ``reader`` matches."""
        if not reader.count(roots=True):
            return "this run has no trajectory; what was bound, called and dropped: autotrace status"
        steps = [step for step in reader.steps() if step is not None]
        if self.step is not None and steps and not reader.count(equals(step=self.step), roots=True):
            available = f"step {steps[0]}" if steps[0] == steps[-1] else f"steps {steps[0]} to {steps[-1]}"
            return f"no trajectory of step {self.step}; this run has {available}"
        return "no trajectory matches; without these options autotrace ls lists all trajectories of the run"

    def __bool__(self) -> bool:
        """Tell whether any option was given."""
        return self != Selection()


_OPTIONS = (
    click.option("--step", type=int, metavar="N", help="Only this training step."),
    click.option("--sample", metavar="INDEX", help="Only the rollouts of this prompt (sample_index)."),
    click.option(
        "--status", "statuses", multiple=True, metavar="STATUS", type=click.Choice(STATUSES, case_sensitive=False),
        help=f"Only this status; repeatable. One of {', '.join(STATUSES)}.",
    ),
    click.option("--validate/--train", "validate", default=None, help="Only validation, or only training."),
    click.option(
        "--where", multiple=True, metavar="CONDITION",
        help="Only trajectories for which this is true, such as \"reward < 0.1 and step >= 3\"; repeatable.",
    ),
)  # fmt: skip


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the function of a command a parameter ``selection``, and the command the options for the selection."""

    @functools.wraps(command)
    def called(
        step: int | None, sample: str | None, statuses: tuple[str, ...], validate: bool | None, where: tuple[str, ...],
        **others: Any,
    ) -> Any:  # fmt: skip
        return command(selection=Selection(step, sample, statuses, validate, where), **others)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called
