"""``autotrace export``: a run's trajectories as files that other tools open. The formats: ``autotrace/export``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from autotrace.cli import runs, terminal
from autotrace.export import registry
from autotrace.export.format import STDOUT, ExportError
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.trajectory.model import Trajectory

GONE = "their segments were removed from the run folder (--spool-limit)"


@click.command(short_help="Write the trajectories to files: JSON lines, veRL's rollout dump, ...")
@runs.run_argument
@click.option(
    "--format", "layout", type=click.Choice(list(registry.FORMATS)), default="jsonl", show_default=True,
    help=registry.help_text(),
)  # fmt: skip
@click.option("--out", metavar="PATH", help="Where to write to; default: the folder export/FORMAT in the run folder.")
@click.option("--step", type=int, metavar="N", help="Export only this training step.")
def export(run: str | None, layout: str, out: str | None, step: int | None) -> None:
    """Write the trajectories of a run to files. Existing files of the same name are replaced.

    PATH is a folder; for a format of one file it may also be that file, or - for standard output.
    """
    chosen = registry.get(layout)
    if out is not None and "://" in out and not chosen.remote:
        raise terminal.fail(f"--out {out}: the format {layout} writes to local folders only")
    reader = RunReader.open(runs.locate(run))
    out = out or str(reader.run_folder / "export" / layout)
    left_out: Counter[str] = Counter()
    try:
        written = chosen.write(_trajectories(reader, step, left_out), out)
    except ExportError as error:
        raise terminal.fail(error) from None
    except OSError as error:
        raise terminal.fail(f"cannot write to {out}: {error.strerror or error}") from None
    for why, count in (left_out + written.left_out).items():
        click.echo(f"{terminal.counted(count, 'trajectory', 'trajectories')} left out: {why}", err=True)
    if not written.trajectories:
        raise terminal.fail("this run has no trajectory to export; autotrace ls lists its traces")
    exported = terminal.counted(written.trajectories, "trajectory", "trajectories")
    where = "standard output" if out == STDOUT else out
    click.echo(f"{exported} in {terminal.counted(written.files, 'file')}: {where}", err=out == STDOUT)


def _trajectories(reader: RunReader, step: int | None, left_out: Counter[str]) -> Iterator[Trajectory]:
    """In veRL's order."""
    rows = reader.rows(step=step, role="trajectory")
    for row in sorted(rows, key=lambda row: (row.step or 0, row.uid or "", row.rollout_n or 0, row.start_ns or 0)):
        try:
            yield reader.load(row.trace_id)
        except Gone:
            left_out[GONE] += 1
