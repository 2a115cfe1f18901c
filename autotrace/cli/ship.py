"""Deliver the records that a run left on disk: ``autotrace ship DIR``. A second call delivers nothing twice."""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path

import click
import msgspec

from autotrace.cli import runs, terminal
from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.launch import option_types, run_setup
from autotrace.launch.options import Options
from autotrace.redact.masking import masked_uri
from autotrace.run import files
from autotrace.run.info import RunInfo
from autotrace.run.status import Status
from autotrace.sinks.registry import TABLES, BackendError
from autotrace.tables.storage import is_url


@click.command(no_args_is_help=True, short_help="Deliver what a run left on disk.")
@click.argument("run", metavar="DIR")
@click.option("--backend", "backends", multiple=True, metavar="NAME", callback=option_types.backends,
              cls=option_types.BackendOption, help="Add this backend to those of the run; repeatable.")  # fmt: skip
@click.option("--tracking-uri", metavar="URI", help="Deliver to this MLflow store or server from now on.")
@click.option("--tables", type=option_types.checked(option_types.tables), metavar="PLACE",
              help="Copy the run's tables there: a folder or s3://bucket/folder; adds --backend parquet.")  # fmt: skip
@click.option("--tokenizer", type=option_types.checked(option_types.tokenizer), metavar="NAME",
              help="Decode token ids with this tokenizer from now on: a folder, or a name on the hub.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also deliver what the keep-rules of the run left out.")
def ship(
    run: str, backends: tuple[str, ...], tracking_uri: str | None, tables: str | None, tokenizer: str | None,
    everything: bool,
) -> None:  # fmt: skip
    """Deliver what the run DIR left on disk, and wait for it. Exit code 1 if something is still left."""
    if is_url(run):
        raise terminal.fail(f"{run} is in a bucket; copy it into a folder here and deliver from that")
    folder = runs.locate(run)
    if strange := files.strange(folder):
        raise terminal.fail(f"nothing is written into {folder}: {strange}; remove it")
    os.environ[env.AUTOTRACE] = "0"  # processes that delivery starts are not part of any run
    os.environ[env.OWN_RUN] = ""
    try:
        _redirect(folder, backends, tracking_uri, tables, tokenizer)
        from autotrace.ship.shipper import ship as deliver

        with terminal.counting("delivered") as count:
            shown = None if count is None else lambda status: count(*_delivered(status))
            status = deliver(folder, once=True, everything=everything, progress=shown)
    except run_setup.RunSetupError as error:
        raise terminal.fail(error) from None
    except (OSError, msgspec.MsgspecError, sqlite3.Error, BackendError) as error:
        raise terminal.fail(f"{folder} cannot be used: {error}") from None
    finally:
        del os.environ[env.OWN_RUN]
    _report(folder, status)
    if status.state != "done" or status.pending:
        raise click.exceptions.Exit(exit_codes.FAILED)


def _redirect(
    folder: Path, backends: tuple[str, ...], tracking_uri: str | None, tables: str | None, tokenizer: str | None
) -> None:
    """Write other backends, a tracking URI, a place for the tables or a tokenizer into ``run.json``, after a check."""
    info = RunInfo.read(folder)
    wanted = tuple(dict.fromkeys([*info.backends, *backends, *([TABLES] if tables else [])]))
    origins = {"backends": "option --backend", "tracking_uri": "option --tracking-uri"}
    uri = run_setup.absolute_uri(
        tracking_uri, run_setup.checked_backends(Options(wanted, tracking_uri, origins=origins))
    )
    if uri is not None:
        os.environ[env.TRACKING_URI] = uri
        info.tracking_uri = masked_uri(uri)
        info.origins = {**info.origins, "tracking_uri": "option --tracking-uri of autotrace ship"}
    if tables is not None:
        os.environ[env.TABLES] = info.tables = tables
        info.origins = {**info.origins, "tables": "option --tables of autotrace ship"}
    if tokenizer is not None:
        info.tokenizer = tokenizer
        info.tokenizers = {**info.tokenizers, **run_setup.kept_tokenizers(folder, [tokenizer])}
        info.origins = {**info.origins, "tokenizer": "option --tokenizer of autotrace ship"}
    if list(wanted) != info.backends or {uri, tables, tokenizer} != {None}:
        info.backends = list(wanted)
        info.write(folder)


def _delivered(status: Status) -> tuple[int, int]:
    """Count delivered and all trajectories, over all backends."""
    delivered = sum(backend.delivered for backend in status.backends.values())
    return delivered, delivered + status.pending + status.open


def _report(folder: Path, status: Status) -> None:
    for name, backend in status.backends.items():
        where = f" ({backend.place})" if backend.place else ""
        rejected = f", {backend.rejected_count} rejected for good" if backend.rejected_count else ""
        click.echo(terminal.safe(f"{name}: {backend.delivered} delivered, {backend.pending} left{rejected}{where}"))
        if backend.error:
            click.echo(terminal.safe(f"  {backend.error}"), err=True)
    for note in status.notes:
        click.echo(terminal.safe(note), err=True)
    if not status.backends:
        there = terminal.counted(status.trajectories, "trajectory is", "trajectories are")
        click.echo(terminal.safe(f"{there} in {folder}; the run has no backend (--backend NAME adds one)"))
    if status.error and all(status.error != backend.error for backend in status.backends.values()):
        click.echo(terminal.safe(status.error), err=True)  # the run folder itself takes nothing more
    if status.state in ("running", "draining"):
        shown = shlex.quote(str(folder))
        click.echo(
            f"the run's own shipper (pid {status.pid} on {status.host}) is still delivering: autotrace status {shown}"
        )
