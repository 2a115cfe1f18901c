"""Print a line per step: ``autotrace steps``."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import IO

import click

from autotrace.cli import listing, runs, terminal
from autotrace.cli.listing import Cells
from autotrace.cli.terminal import one_line
from autotrace.insight.diagnose import Diagnosis, counts
from autotrace.insight.families.scalars import NAMES
from autotrace.insight.families.time import PARTS
from autotrace.insight.step_lines import StepLine, line
from autotrace.insight.step_records import Record, Step
from autotrace.tables import steps as of_run
from autotrace.tables.reader import Reader

Key = tuple[int | None, bool, str | None]
"""Key of a line: step, whether validation, data source."""
Read = tuple[list[StepLine], bool]
"""Lines at this moment, and whether the run goes on."""
METRICS = 6
"""Metrics that are shown for a run without rollouts."""
EVERY = 2.0
"""Seconds between two looks at a run that goes on."""


@click.command(short_help="Print a line per step: rewards, truncation, errors, time, findings.")
@runs.argument
@click.option("--step", type=int, metavar="N", help="Only this training step.")
@click.option("--validate/--train", "validate", default=None, help="Only validation, or only training; default: both.")
@click.option("--by", type=click.Choice(["data_source"]), help="One line for each data source of a step.")
@click.option("--follow", is_flag=True, help="Keep running: print a line when a step is over.")
@terminal.json_option("Print one JSON object a line.")
def steps(
    named: tuple[str, ...], step: int | None, validate: bool | None, by: str | None, follow: bool, as_json: bool
) -> None:
    """Print a line per step: rewards, endings and times of the trajectories.

    \b
    count, open    trajectories; trajectories that are still running
    reward, ±      mean and standard deviation; parts: mean of each part
    no-signal      groups with the same reward for all rollouts, out of all groups
    best, worst    such groups with the best, or the worst, reward of the step
    truncated      share of trajectories that were cut at a limit of tokens
    failed         trajectories that failed, by error
    tool errors    failed calls, by tool
    turns, tokens  means per trajectory; tokens generated over all turns
    p50 s, p99 s   percentiles of the duration; time: the two largest parts
    cached         prompt tokens of later turns that were in the engine's cache
    lag            steps between the weights that answered and the training step
    mismatch       difference per token of the engine's and the trainer's log-probabilities
    findings       codes, each with the number of trajectories
    """

    def read() -> Read:
        return _read(runs.reader_of_one(named), step, validate, by)

    out = terminal.console()
    lines, living = read()
    if as_json:
        awaited = follow and living
        out.file.writelines(terminal.json_line(each.as_dict()) for each in lines if not (awaited and each.open))
    elif not lines and (step is not None or validate is not None):
        raise terminal.fail(_nothing(step, validate))
    elif not lines:
        out.print(_nothing(step, validate))
    else:
        listing.show(out, columns(lines), whole=True)
        if out.is_terminal:
            out.print(terminal.line("autotrace steps --help explains the columns", "dim"))
    if follow and living:
        seen = {_key(each) for each in lines if not each.open}
        out.file.flush()
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C stops the command
            _follow(read, seen, out.file, as_json)


def _follow(read: Callable[[], Read], seen: set[Key], out: IO[str], as_json: bool) -> None:
    """Print a line for each finished step that is not in ``seen``, until the run ends."""
    living = True
    while living:
        time.sleep(EVERY)
        lines, living = read()
        for each in lines:
            if _key(each) in seen or (each.open and living):
                continue
            seen.add(_key(each))
            shown = terminal.json_line(each.as_dict()) if as_json else "  ".join(
                f"{column.name} {column.cells[0].strip()}" for column in columns([each]) if column.cells[0]
            ) + "\n"  # fmt: skip
            out.write(shown)
            out.flush()


def _nothing(step: int | None, validate: bool | None) -> str:
    kind = {None: "", True: " of validation", False: " of training"}[validate]
    return f"this run has no trajectory{kind}" if step is None else f"there is no trajectory{kind} of step {step}"


def _key(each: StepLine) -> Key:
    return each.step, each.validate, each.data_source


def _read(opened: Reader, number: int | None, validate: bool | None, by: str | None) -> Read:
    diagnosis, lines = Diagnosis(), []
    with contextlib.closing(opened) as reader:
        for step in of_run.steps(reader, number, partial(terminal.shown, what="trajectories examined")):
            hits = diagnosis.add(step)
            if not step.records:  # a run without rollouts
                lines.append(line(step, [], validate=False, findings=[(hit.code, 1) for hit in hits]))
            for records, is_validation, source in _parts(step, validate, by):
                ids = {record.trace_id for record in records}
                found = counts(hit for hit in hits if hit.record.trace_id in ids)
                counted = sorted(found.items(), key=lambda each: -each[1])
                lines.append(line(step, records, validate=is_validation, data_source=source, findings=counted))
        return lines, reader.run.living


def _parts(step: Step, validate: bool | None, by: str | None) -> Iterator[tuple[list[Record], bool, str | None]]:
    for records, is_validation in ((step.training, False), (step.validation, True)):
        if not records or (validate is not None and validate != is_validation):
            continue
        if by is None:
            yield records, is_validation, None
            continue
        for source in sorted({record.data_source or "" for record in records}):
            yield [record for record in records if (record.data_source or "") == source], is_validation, source


def _metrics(lines: Sequence[StepLine], cells: Callable[..., Cells]) -> Iterator[Cells]:
    """Yield the metrics of a run without rollouts, first the metrics that findings read."""
    if any(each.trajectories for each in lines):
        return
    names = sorted({name for each in lines for name in each.metrics})
    looked = re.compile("|".join(f"(?:{pattern})" for pattern in NAMES.values()))
    for name in sorted(names, key=lambda name: looked.search(name) is None)[:METRICS]:
        yield cells(one_line(name), lambda each, name=name: format(each.metrics.get(name, math.nan), ".4g"))


def columns(lines: Sequence[StepLine]) -> list[Cells]:
    """Build a table of the lines; an empty column is left out."""

    def cells(name: str, shown: Callable[[StepLine], str], right: bool = True) -> Cells:
        return Cells.of(name, lines, shown, right)

    def numbers(name: str, value: Callable[[StepLine], float | None]) -> Cells:
        return Cells(name, listing.aligned(list(map(value, lines))), True)

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    made = [
        cells("step", lambda each: "" if each.step is None else str(each.step)),
        cells("", lambda each: "val" if each.validate else "", False),
        cells("source", lambda each: one_line(each.data_source or ""), False),
        cells("count", lambda each: f"{each.trajectories:,}"),
        *_metrics(lines, cells),
        cells("open", lambda each: str(each.open or "")),
        numbers("reward", attrgetter("reward_mean")),
        numbers("±", attrgetter("reward_std")),
        cells("parts", _parts_of, False),
        cells("no-signal", lambda each: f"{each.flat}/{each.groups}" if each.groups else ""),
        cells("best", lambda each: str(each.all_right or "")),
        cells("worst", lambda each: str(each.all_wrong or "")),
        cells("truncated", lambda each: share(each.truncated)),
        cells("failed", lambda each: _counts(each.errors), False),
        cells("tool errors", lambda each: _counts(each.tool_errors), False),
        numbers("turns", attrgetter("turns_mean")),
        cells("tokens", lambda each: "" if each.tokens_mean is None else f"{each.tokens_mean:,.0f}"),
        numbers("p50 s", attrgetter("seconds_p50")),
        numbers("p99 s", attrgetter("seconds_p99")),
        cells("time", _time, False),
        cells("cached", lambda each: share(each.cached)),
        numbers("lag", attrgetter("staleness")),
        numbers("mismatch p50", attrgetter("mismatch_p50")),
        numbers("mismatch p99", attrgetter("mismatch_p99")),
        cells("findings", lambda each: _counts(each.findings), False),
    ]
    return [column for column in made if any(column.cells)]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name)} {count:,}" for name, count in counts.items())


def _time(each: StepLine) -> str:
    """Return the two largest parts."""
    largest = sorted(each.time.items(), key=lambda part: -part[1])[:2]
    return ", ".join(f"{name.removesuffix('_s')} {share:.0%}" for name, share in largest if name in PARTS)


def _parts_of(each: StepLine) -> str:
    return " ".join(f"{one_line(name)} {value:.4g}" for name, value in each.reward_parts.items())
