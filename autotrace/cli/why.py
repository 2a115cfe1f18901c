"""Say what tells two sets of rollouts apart: ``autotrace why``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import click
import msgspec

from autotrace.cli import runs, terminal
from autotrace.cli.terminal import counted, line
from autotrace.insight.diagnose import late_hits
from autotrace.insight.finding import Explanation
from autotrace.insight.rollouts import Rollouts, Row
from autotrace.insight.step_records import History, Record, Step
from autotrace.insight.why import Why, of_two, words
from autotrace.tables.conditions import Condition, condition
from autotrace.tables.reader import Reader
from autotrace.tables.steps import steps
from autotrace.tables.two_runs import MOST

Sides = tuple[Callable[[Record], bool], Callable[[Record], bool]]
"""Choose the rollouts of the two sets."""


@click.command(short_help="Say what changed when the reward changed, and in which rollouts.")
@runs.argument
@click.option("--step", type=int, metavar="N", help="Compare this step ...")
@click.option("--where", metavar="CONDITION", help="Compare the rollouts for which this is true ...")
@click.option(
    "--against", metavar="N | CONDITION",
    help="... with this step, or with the rollouts for which this is true. Default: the step before, or all others.",
)  # fmt: skip
@terminal.json_option("Print one JSON object for each comparison.")
def why(named: tuple[str, ...], step: int | None, where: str | None, against: str | None, as_json: bool) -> None:
    """Say what tells two sets of rollouts apart: the traits that carry the difference, the earliest cause first.

    Without options: the rollouts after and before each change of the mean reward; without a change, the rollouts below
    and above the mean of each group. With two runs: the rollouts of both runs.

    A trait is anything recorded about a rollout: prompt, sampling, tools with arguments and answers, errors, ending,
    times, host. A cause is printed only if chance is ruled out; the number of traits is accounted for.
    """
    if step is not None and where is not None:
        raise click.UsageError("choose rollouts with --step or with --where, not with both")
    if against is not None and step is None and where is None:
        raise click.UsageError("--against says what --step or --where is compared with; give one of these")
    out = terminal.console()
    if len(named) == 2:
        if step is not None or where is not None:
            raise click.UsageError("two runs are compared whole; --step and --where choose within one run")
        answers: Sequence[Explanation] = [_two(named)]
    else:
        with contextlib.closing(runs.reader_of_one(named)) as reader:
            answers = _of_one(reader, step, where, against)
    if as_json:
        out.file.writelines(terminal.json_line(msgspec.to_builtins(answer)) for answer in answers)
        return
    for answer in answers:
        for number, text in enumerate(words(answer, lambda cause: _examples(cause.with_it, cause.without_it))):
            out.print(line(text, "bold" if not number else ""), soft_wrap=not out.is_terminal)
    if not all(answer.causes for answer in answers):
        out.print(line("autotrace diagnose names faults that are in good and bad rollouts alike", "dim"))


def _examples(having: Sequence[str], lacking: Sequence[str]) -> list[str]:
    both = (("with", having), ("without", lacking))
    return [f"e.g. {', '.join(' '.join([name, *(trace[:12] for trace in ids)]) for name, ids in both if ids)}"]


def _of_one(reader: Reader, step: int | None, where: str | None, against: str | None) -> Sequence[Explanation]:
    if step is None and where is None:
        watch, has_steps = Why(MOST), False
        for each in _examined(reader):
            has_steps = has_steps or each.number is not None  # trajectories without a step come last
            watch.add(each if has_steps else replace(each, number=0))
        found, rows = list(watch.answers()), [row for own in watch.by_step.values() for row in own]
        if not rows and reader.run.kind:
            return []  # metrics alone: the reader says so
        if not rows:
            nothing = runs.Selection().nothing(reader) if not reader.count() else "no trajectory of training to compare"
            raise terminal.fail(nothing)
        if not any(row.reward is not None for row in rows):
            raise terminal.fail(f"no reward is recorded for {counted(len(rows), 'rollout')}, so nothing is compared")
        if not found:
            said = f"{counted(len(rows), 'rollout')} in {counted(len(watch.by_step), 'step')}"
            note = "and no group has rollouts with different rewards"
            return [Explanation(f"{said}: the mean reward does not change", "", [], 0, len(rows), 0, note=note)]
        return found
    if where is not None:
        one, other = _satisfying(reader, where), (_satisfying(reader, against) if against is not None else None)
        is_other = (lambda id: id not in one) if other is None else other.__contains__
        chosen: Sides = (lambda record: record.trace_id in one, lambda record: is_other(record.trace_id))
        return [_compared(reader, f"rollouts with {where}", "among the others", chosen)]
    numbers = [number for number in reader.steps() if number is not None]
    earlier = [number for number in numbers if step is not None and number < step]
    before = _number(against) if against is not None else earlier[-1] if earlier else None
    if step not in numbers or before not in numbers:
        missing = step if step not in numbers else before
        raise terminal.fail(f"there is no step {missing} to compare; autotrace steps lists the steps")
    sets: Sides = (lambda record: record.step == step and not record.validate,
                   lambda record: record.step == before and not record.validate)  # fmt: skip
    return [_compared(reader, f"step {step} against step {before}", f"in step {before}", sets)]


def _examined(reader: Reader) -> Iterator[Step]:
    """Yield the steps, with the findings of groups and steps as traits."""
    history = History()
    for step in steps(reader, None, partial(terminal.shown, what="trajectories examined")):
        late_hits(step, history)
        yield step


def _number(against: str) -> int:
    if not against.lstrip("-").isdecimal():
        raise click.UsageError(f"--step is compared with a step: --against N, not {against!r}")
    return int(against)


def _satisfying(reader: Reader, expression: str) -> set[str]:
    wanted: Condition = condition(expression)
    return {row.trace_id for row in reader.select(wanted, ("trace_id",))}


def _compared(reader: Reader, title: str, other: str, sets: Sides) -> Explanation:
    table, rows = Rollouts(), (list[Row](), list[Row]())
    for step in _examined(reader):
        for own, chosen in zip(rows, sets, strict=True):
            own += table.rows_of(step, [record for record in step.records if chosen(record)], MOST)
    return _contrasted(title, other, rows, table)


def _two(named: Sequence[str]) -> Explanation:
    table, sets = Rollouts(), (list[Row](), list[Row]())
    for name, rows in zip(named, sets, strict=True):
        with contextlib.closing(runs.reader_of_one([name])) as reader:
            for step in _examined(reader):
                rows += table.rows_of(step, step.training, MOST, name)
    return _contrasted(f"{named[0]} against {named[1]}", f"in {named[1]}", sets, table)


def _contrasted(title: str, other: str, sets: tuple[list[Row], list[Row]], table: Rollouts) -> Explanation:
    if not all(sets):
        raise terminal.fail(f"{title}: one set has no rollout; autotrace ls, with --where, shows what there is")
    return of_two(title, other, sets, table)
