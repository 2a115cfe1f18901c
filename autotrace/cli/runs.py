"""Which run a command means, and which trajectories of it: the same options everywhere. ``docs/commands.md`` is their
page."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from autotrace.cli.terminal import fail, safe
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import RunInfo, find_runs, is_there, not_readable
from autotrace.ship.readers import of_run, opened, stored_places
from autotrace.tables.conditions import Condition, condition, equals, has_status
from autotrace.tables.reader import Reader
from autotrace.tables.words import STATUSES

run_argument = click.argument("run", required=False, metavar="[RUN]")
"""A run folder, a folder of runs, a run's name, a folder of tables, a file of lines, or what ``autotrace open`` takes;
without it the newest run."""


def reader(run: str | None) -> Reader:
    """What ``run`` means, to read: the newest run where it is a folder of several. Raises as ``locate``."""
    stored = [] if run is None else stored_places(Path(run))
    return opened(stored[-1]) if stored else of_run(locate(run))


def locate(run: str | None) -> Path:
    """The folder of ``run``: a path, a name (or its beginning) below the run directory, or None for the newest.

    Raises ``click.exceptions.Exit`` after one line on stderr, ``OSError`` with one sentence.
    """
    found, closed = find_runs(chosen(run))
    folder = found[-1]
    for path, problem in closed.items():
        if path.name > folder.name:
            click.echo(f"autotrace: {safe(problem)}; the newest that can be read is {safe(folder.name)}", err=True)
    try:
        RunInfo.read(folder)
    except PermissionError:
        raise not_readable(folder / layout.RUN_JSON) from None
    except (OSError, msgspec.MsgspecError) as error:
        what = f"{folder / layout.RUN_JSON} cannot be read ({error})"
        raise fail(f"{what}; fix the file or name another run") from None
    return folder


def chosen(run: str | None) -> Path:
    """A run folder or a folder of runs. Raises as ``locate``."""
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
        if os.path.isdir(run):
            return Path(run)
        raise fail(
            f"{run} is a file, and none that autotrace open takes: name a run folder, a folder of runs, or a run by "
            "its name"
        )
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
        raise fail(f"{run}: {len(named)} runs in {parent} begin with {run!r}")
    raise fail(f"{run}: no such folder, and no such run in {parent}")


@dataclass(frozen=True)
class Selection:
    """What the options of ``options`` say."""

    step: int | None = None
    sample: str | None = None
    statuses: tuple[str, ...] = ()
    validate: bool | None = None
    where: tuple[str, ...] = ()

    @property
    def condition(self) -> Condition:
        """All of them together. Raises ``WhereError``."""
        together = equals(step=self.step, sample_index=self.sample) & has_status(self.statuses)
        if self.validate is not None:
            together &= condition("validate" if self.validate else "not validate")
        for expression in self.where:
            together &= condition(expression)
        return together

    def __bool__(self) -> bool:
        """Whether anything was said."""
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
    """Give the function of a command a parameter ``selection``, and the command the options that it comes from."""

    @functools.wraps(command)
    def called(
        step: int | None, sample: str | None, statuses: tuple[str, ...], validate: bool | None, where: tuple[str, ...],
        **others: Any,
    ) -> Any:  # fmt: skip
        return command(selection=Selection(step, sample, statuses, validate, where), **others)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called
