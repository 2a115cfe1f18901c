"""``autotrace demo``: a recorded run to try the commands on, which the package carries."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
from pathlib import Path

import click

from autotrace.cli import terminal
from autotrace.cli.diagnose import diagnose
from autotrace.cli.show import show
from autotrace.cli.view import view
from autotrace.run import files
from autotrace.run.info import RunInfo
from autotrace.run.status import Status

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "recorded_run", _PACKAGE.parent / "examples" / "recorded_run" / "run")
"""In an installation, and beside the package in a source tree."""


@click.command(short_help="Try the commands on a recorded run: no GPU, no trainer, no network.")
@click.option("--run-dir", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Put the run into this folder of runs; default: a new temporary folder.")  # fmt: skip
@click.option("--view", "opens", is_flag=True, help="Then open the run in the browser.")
@click.pass_context
def demo(context: click.Context, run_dir: Path | None, opens: bool) -> None:
    """Try the commands on a recorded run of veRL's agent loops: 3 steps of 16 prompts with 8 rollouts each.

    Prints what is wrong with the run and one trajectory, and says what to run next. Needs no GPU, no trainer and no
    network. examples/recorded_run/program.py in the repository says how the run was made.
    """
    source = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if source is None:
        raise terminal.fail("this installation does not carry the recorded run; install the wheel")
    try:
        folder = _copied(source, run_dir)
    except OSError as error:
        raise terminal.fail(f"the recorded run cannot be copied: {error}") from None
    shown = shlex.quote(str(folder))
    click.echo(
        f"A recorded run of a veRL agent that answers questions about jam sales with SQL: {terminal.safe(shown)}"
    )
    _say(f"autotrace diagnose {shown}")
    context.invoke(diagnose, run=str(folder))
    worst = Status.read(folder).found.trace_id[:12]
    _say(f"autotrace show {worst} {shown}")
    context.invoke(show, trace=worst, run=str(folder))
    click.echo("\nNext:")
    for words in (f"steps {shown}", f"ls {shown} --step 2 --sort reward", f"compare {shown} --step 2 --sample 206",
                  f"grep KeyError {shown}", f"view {shown}"):  # fmt: skip
        click.echo(f"    autotrace {terminal.safe(words)}")
    if opens:
        context.invoke(view, run=str(folder), host="127.0.0.1")


def _say(command: str) -> None:
    click.secho(f"\n$ {terminal.safe(command)}", bold=True)


def _copied(source: Path, run_dir: Path | None) -> Path:
    """The run in a folder that only this user can read. It appears there when it is whole; one that is there stays."""
    name = RunInfo.read(source).run_id
    run_dir = Path(run_dir or files.temporary_folder("autotrace-demo-"))
    files.folder(run_dir)
    folder = (run_dir / name).absolute()
    if not os.path.lexists(folder):
        making = files.temporary_folder(f".{name}-", run_dir)
        try:
            for path in source.rglob("*"):
                if path.is_file():
                    to = Path(making, path.relative_to(source))
                    files.folder(to.parent)
                    files.replace(to, path.read_bytes())
            with contextlib.suppress(OSError):  # another one was quicker, which is looked at next
                os.rename(making, folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    there = files.is_own(folder) and {path.name for path in folder.iterdir()} >= {
        path.name for path in source.iterdir()
    }
    if not there:
        raise FileExistsError(errno.EEXIST, "is not the recorded run; choose another --run-dir", str(folder))
    return folder
