"""``autotrace runs``: the runs of a folder, newest first, from what each one's shipper wrote last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import msgspec

from autotrace.cli import listing, terminal
from autotrace.cli.listing import Cells
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import RunInfo, find_runs, is_there, not_readable
from autotrace.run.status import described

STYLES = {"done": "green", "running": "yellow", "draining": "yellow"}


@click.command(short_help="List the runs of a folder, newest first.")
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path(path_type=Path, readable=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def runs(folder: Path | None, as_json: bool) -> None:
    """List the runs in DIR (default: ./autotrace-runs, or $AUTOTRACE_RUN_DIR), newest first."""
    parent = folder or Path(os.environ.get(env.RUN_DIR) or layout.DEFAULT_RUN_DIR)
    if not is_there(parent):
        raise terminal.fail(f"{parent}: no such folder; autotrace-run makes one for its runs")
    found, closed = find_runs(parent)
    for closed_error in closed.values():
        click.echo(f"autotrace: {terminal.safe(closed_error)}", err=True)
    listed = sorted(_runs(found), key=lambda run: (run["created"], run["run"]), reverse=True)
    if not listed:
        raise terminal.fail(f"{parent} holds no autotrace run that can be read")
    out = terminal.console()
    if as_json:
        out.file.writelines(terminal.json_line(run) for run in listed)
        return

    listing.show(out, [
        Cells.of("run", listed, itemgetter("run")),
        Cells.of("started", listed, lambda run: run["created"][:19].replace("T", " ")),
        Cells.of("state", listed, itemgetter("state"), style=lambda run: STYLES.get(run["state"], "red")),
        *(Cells.of(name, listed, itemgetter(name), True) for name in ("trajectories", "left")),
        *(Cells.of(name, listed, itemgetter(name)) for name in ("backends", "command")),
    ])  # fmt: skip


def _runs(folders: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for folder in folders:
        path = folder / layout.RUN_JSON
        try:
            info = RunInfo.read(folder)
        except PermissionError:
            click.echo(f"autotrace: {terminal.safe(not_readable(path))}", err=True)
            continue
        except (OSError, msgspec.MsgspecError) as error:
            click.echo(f"autotrace: {terminal.safe(path)} cannot be read: {terminal.safe(error)}", err=True)
            continue
        yield described(folder, info)
