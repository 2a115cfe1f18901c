"""Write a run's trajectories as files that other tools open: ``autotrace export``. Formats: ``autotrace/export``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path

import click

from autotrace.cli import runs, terminal
from autotrace.export import format
from autotrace.export.conversation import conversation_digest
from autotrace.export.format import STDOUT, ExportError
from autotrace.tables.conditions import Condition
from autotrace.tables.light_imports import arrow_without_pandas
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import Trajectory

GONE = "their segments and tables were removed from the run folder"
TWICE = "the same conversation was exported already (--dedup)"


@click.command(short_help="Write the trajectories to files: JSON lines, veRL's rollout dump, ...")
@runs.argument
@click.option(
    "--format", "layout", type=click.Choice(list(format.FORMATS)), default="jsonl", show_default=True,
    help=format.help_text(),
)  # fmt: skip
@click.option("--out", metavar="PATH", help="Where to write to; default: the folder export/FORMAT in the run folder.")
@runs.options
@click.option("--min-reward", type=float, metavar="REWARD", help="Only those with at least this reward.")
@click.option("--dedup", is_flag=True, help="Keep the first of identical conversations.")
def export(
    named: tuple[str, ...], layout: str, out: str | None, selection: runs.Selection, min_reward: float | None,
    dedup: bool,
) -> None:  # fmt: skip
    """Write the trajectories of a run to files. Existing files of the same name are replaced.

    PATH is a folder; for a format of one file it may also be that file, or - for standard output.
    """
    as_tables = layout == format.TABLES
    if as_tables:
        arrow_without_pandas()
    elif out is not None and "://" in out:
        raise terminal.fail(f"--out {out}: the format {layout} writes to local folders only")
    reader = runs.reader(named)
    if out is None and (len(reader.sources) > 1 or not reader.run.path.is_dir()):
        raise terminal.fail("there is not one run folder to write into: say where to write to with --out PATH")
    out = out or str(_own_folder(reader.run.path, layout))
    wanted = selection.condition
    if min_reward is not None:
        wanted &= Condition("reward >= ?", (min_reward,), frozenset({"reward"}))
    left_out: Counter[str] = Counter()
    trajectories = _trajectories(reader, wanted, left_out)
    metrics = {"metrics": {each.info.run_id: each.step_facts() for each in reader.sources}} if as_tables else {}
    try:
        written = format.get(layout)(_distinct(trajectories, left_out) if dedup else trajectories, out, **metrics)
    except ExportError as error:
        raise terminal.fail(error) from None
    except BrokenPipeError:  # the reader of standard output has seen enough: click ends quietly
        raise
    except OSError as error:
        raise terminal.fail(f"cannot write to {out}: {error.strerror or error}") from None
    for why, count in (left_out + written.left_out).items():
        click.echo(f"{terminal.counted(count, 'trajectory')} left out: {why}", err=True)
    if not written.trajectories:
        raise terminal.fail(_nothing(reader, wanted, min_reward is not None or bool(selection)))
    exported = terminal.counted(written.trajectories, "trajectory")
    if out == STDOUT:
        click.echo(f"wrote {exported} to standard output", err=True)
    else:
        where = out if os.path.isfile(out) else f"{terminal.counted(written.files, 'file')} in {out}"
        click.echo(f"wrote {exported} to {where}")


def _own_folder(run_folder: Path, layout: str) -> Path:
    """Return the export folder in the run folder. A link there may be a stranger's, and lead to any file."""
    export = run_folder / "export"
    for path in (export, export / layout, *(export / layout).rglob("*")):
        if path.is_symlink():
            raise terminal.fail(f"{path} is a link, which is not followed: say where to write to with --out PATH")
    return export / layout


def _trajectories(reader: Reader, wanted: Condition, left_out: Counter[str]) -> Iterator[Trajectory]:
    """Yield trajectories run by run, each in veRL's order, groups together."""
    rows = reader.select(wanted, ("run_id", "trace_id", "step", "uid", "group_id", "rollout_n", "start_ns"))
    rows.sort(key=lambda row: (row.step or 0, row.uid or "", row.group_id or "", row.rollout_n or 0, row.start_ns or 0))
    rows.sort(key=attrgetter("run_id"))
    for _, one in reader.each(terminal.shown(rows, "trajectories")):
        if one is None:
            left_out[GONE] += 1
        else:
            yield one


def _distinct(trajectories: Iterable[Trajectory], left_out: Counter[str]) -> Iterator[Trajectory]:
    """Yield the first of trajectories with equal conversations."""
    seen = set()
    for trajectory in trajectories:
        digest = conversation_digest(trajectory)
        if digest in seen:
            left_out[TWICE] += 1
            continue
        seen.add(digest)
        yield trajectory


def _nothing(reader: Reader, wanted: Condition, filtered: bool) -> str:
    """Explain why nothing was exported."""
    if reader.count(wanted):
        return "none of these trajectories could be exported"
    if filtered and reader.count():
        return "no trajectory matches; autotrace ls, with the same options, shows which do"
    return "this run has no trajectory to export; autotrace ls --all lists its traces"
