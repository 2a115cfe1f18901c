"""Keep a judgement about a trajectory: ``autotrace label``."""

from __future__ import annotations

import contextlib

import click

from autotrace.cli import runs, terminal
from autotrace.tables import labels


@click.command(no_args_is_help=True, short_help='Label a trajectory: autotrace label 3f9c1a good "why".')
@click.argument("trace")
@click.argument("label", required=False, default="")
@click.argument("why", required=False, default="")
@click.option("--run", metavar="RUN", help="The run; default: the newest.")
@click.option("--remove", is_flag=True, help="Take the label away.")
def label(trace: str, label: str, why: str, run: str | None, remove: bool) -> None:
    """Give TRACE (an id or the beginning of an id) a LABEL, any text, and say why.

    ls and show print the label, exports have the label, and --where "label = 'good'" finds the label. A new label
    replaces the old label. Labels are kept in the run folder, which must be yours.
    """
    if remove == bool(label):
        raise click.UsageError("name a label, or take it away with --remove")
    with contextlib.closing(runs.reader_of_one([run] if run else [])) as reader:
        trace_id = reader.resolve(trace)
        try:
            labels.write(reader.run.path, trace_id, label, why)
        except ValueError as error:
            raise terminal.fail(error) from None
        except OSError as error:
            raise terminal.fail(f"the label was not kept: {error}") from None
    click.echo(f"{trace_id[:12]}  {terminal.one_line(label) or 'no label'}")
