"""Which trajectories a command means: the same options everywhere. ``docs/commands.md`` is their page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from autotrace.tables.conditions import Condition, WhereError, condition, equals, has_status
from autotrace.tables.words import STATUSES


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
        """All of them together."""
        together = equals(step=self.step, sample_index=self.sample) & has_status(self.statuses)
        if self.validate is not None:
            together &= condition("validate" if self.validate else "not validate")
        for expression in self.where:
            together &= condition(expression)
        return together

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return self != Selection()


def _status(_: click.Context, __: click.Parameter, statuses: Sequence[str]) -> tuple[str, ...]:
    for status in statuses:
        if status.upper() not in STATUSES:
            raise click.BadParameter(f"{status!r} is not a status; choose from {', '.join(STATUSES)}")
    return tuple(status.upper() for status in statuses)


def _where(_: click.Context, __: click.Parameter, expressions: tuple[str, ...]) -> tuple[str, ...]:
    for expression in expressions:
        try:
            condition(expression)
        except WhereError as error:
            raise click.BadParameter(str(error)) from None
    return expressions


_OPTIONS = (
    click.option("--step", type=int, metavar="N", help="Only this training step."),
    click.option("--sample", metavar="INDEX", help="Only the rollouts of this prompt (sample_index)."),
    click.option(
        "--status", "statuses", multiple=True, metavar="STATUS", callback=_status,
        help=f"Only this status; repeatable. One of {', '.join(STATUSES)}.",
    ),
    click.option("--validate/--train", "validate", default=None, help="Only validation, or only training."),
    click.option(
        "--where", multiple=True, metavar="CONDITION", callback=_where,
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
