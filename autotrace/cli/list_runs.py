"""``autotrace runs``: the runs of a folder, newest first, from what each one's shipper wrote last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from autotrace.cli import listing, terminal
from autotrace.cli.listing import Column
from autotrace.cli.terminal import one_line
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.drain import left, shipper_alive
from autotrace.run.info import RunInfo, find_runs, is_there, not_readable
from autotrace.run.status import Status

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

    def cells(name: str) -> list[str]:
        return [one_line("" if run[name] is None else run[name]) for run in listed]

    states = cells("state")
    listing.show(out, [
        Column("run", cells("run")),
        Column("started", [started[:19].replace("T", " ") for started in cells("created")]),
        Column("state", states, styles=lambda number: STYLES.get(states[number], "red")),
        Column("trajectories", cells("trajectories"), True),
        Column("left", cells("left"), True),
        Column("backends", cells("backends")),
        Column("command", cells("command")),
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
        yield _run(folder, info)


def _run(folder: Path, info: RunInfo) -> dict[str, Any]:
    """One run; None: not known, because no shipper has written a status."""
    described: dict[str, Any] = {
        "run": folder.name, "created": info.created, "state": "not assembled", "trajectories": None, "left": None,
        "backends": ", ".join(info.backends), "command": " ".join(info.command),
    }  # fmt: skip
    try:
        status = Status.read(folder)
    except (OSError, ValueError, msgspec.MsgspecError):
        return described
    waiting = left({"pending": status.pending, "open": status.open})
    stopped = status.state in ("running", "draining") and shipper_alive(str(folder)) is False
    state = "stopped" if stopped else status.state
    return {**described, "state": state, "trajectories": status.trajectories, "left": waiting}
