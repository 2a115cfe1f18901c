"""List the runs of a folder, newest first, from the last status of each shipper: ``autotrace runs``."""

from __future__ import annotations

import os
from operator import itemgetter

import click

from autotrace.cli import listing, terminal
from autotrace.cli.listing import Cells
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import is_there
from autotrace.ship.readers import is_run, listed, places

STYLES = {"done": "green", "running": "yellow", "draining": "yellow"}


@click.command(short_help="List the runs of a folder, newest first.")
@click.argument("folder", required=False, metavar="[DIR]")
@terminal.json_option("Print one JSON object a line.")
def runs(folder: str | None, as_json: bool) -> None:
    """List the runs in DIR (default: ./autotrace-runs, or $AUTOTRACE_RUN_DIR), newest first."""
    parent = folder or os.environ.get(env.RUN_DIR) or layout.DEFAULT_RUN_DIR
    if not is_there(parent):
        raise terminal.fail(f"{parent}: no such folder; autotrace-run makes one for its runs")
    problems: list[Exception] = []
    rows = listed(place for place in places(parent, problems) if is_run(place.path))
    for problem in problems:
        click.echo(f"autotrace: {terminal.safe(problem)}", err=True)
    if not rows:
        raise terminal.fail(f"{parent} holds no autotrace run that can be read")
    out = terminal.console()
    if as_json:
        out.file.writelines(terminal.json_line(run) for run in rows)
        return

    listing.show(out, [
        Cells.of("run", rows, itemgetter("run")),
        *([Cells.of("experiment", rows, itemgetter("experiment"))] if any(run["experiment"] for run in rows) else []),
        Cells.of("started", rows, lambda run: run["created"][:19].replace("T", " ")),
        Cells.of("state", rows, itemgetter("state"), style=lambda run: STYLES.get(run["state"], "red")),
        *(Cells.of(name, rows, itemgetter(name), True) for name in ("trajectories", "left")),
        *([Cells.of("processes died", rows, itemgetter("died"), True)] if any(run["died"] for run in rows) else []),
        *(Cells.of(name, rows, itemgetter(name)) for name in ("backends", "command")),
    ])  # fmt: skip
