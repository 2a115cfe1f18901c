"""Which run a command means."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from autotrace.cli.terminal import fail
from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.info import RunInfo, find_run

run_argument = click.argument("run", required=False, metavar="[RUN]")
"""A run folder, a folder of runs, or a run's name; without it the newest run."""


def locate(run: str | None) -> Path:
    """The folder of ``run``: a path, a name (or its beginning) below the run directory, or None for the newest.

    Raises ``click.exceptions.Exit`` after one line on stderr.
    """
    parent = Path(os.environ.get(env.RUN_DIR) or layout.DEFAULT_RUN_DIR)
    inside = os.environ.get(env.RUN_FOLDER)
    if run is None:
        chosen = Path(inside) if inside and os.path.isdir(inside) else parent
    elif os.path.isdir(run):
        chosen = Path(run)
    elif os.path.exists(run):
        raise fail(f"{run} is a file: name a run folder, a folder of runs, or a run by its name")
    elif os.sep in run:
        raise fail(f"{run}: no such folder")
    else:
        named = sorted(path.parent for path in parent.glob(f"{_literal(run)}*/{layout.RUN_JSON}"))
        if len(named) != 1:
            what = (
                f"{len(named)} runs in {parent} begin with {run!r}"
                if named
                else f"no such folder, and no such run in {parent}"
            )
            raise fail(f"{run}: {what}")
        chosen = named[0]
    if run is None and not chosen.is_dir():
        raise fail(
            f"{parent} does not exist, so there is no newest run; name a run folder, or start a run with autotrace-run"
        )
    try:
        folder = find_run(chosen)
        RunInfo.read(folder)
    except FileNotFoundError as error:
        raise fail(error) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise fail(f"{folder / layout.RUN_JSON} cannot be read ({error}); fix the file or name another run") from None
    return folder


def _literal(name: str) -> str:
    """``name`` with glob's own characters taken literally."""
    import glob

    return glob.escape(name)
