"""Make a run, then become the command: ``autotrace-run [OPTIONS] [--] COMMAND ...``.

Process id, arguments, exit code and signals are the same as without the prefix. If the command itself cannot wait for
delivery (no Python, or process 1 of a container), the launcher stays as a parent instead (``supervise``).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

import click

import autotrace
from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.config.installation import replaced, with_activation
from autotrace.config.stderr import complain
from autotrace.launch.command import Command, CommandError, find, refuse_dead_keys
from autotrace.launch.options import Options, SettingsCommand
from autotrace.run import files, layout
from autotrace.run.inherited import after, is_over, without_run

if (_replaced := replaced()) is not None:
    raise SystemExit(f"autotrace: {_replaced}")

EPILOG = """
\b
Examples:
  autotrace-run python -m verl.trainer.main_ppo ...
  autotrace-run --tracking-uri http://mlflow:5000 --project gsm8k -- bash train.sh
  autotrace-run --spec my_agent.yaml python train.py
\b
Afterwards:
  autotrace diagnose  what is wrong with the newest run
  autotrace view      its trajectories in the browser
  autotrace status    what was recorded, dropped and delivered
\b
Every option is also a variable. With autotrace installed, AUTOTRACE=1 traces without the prefix; AUTOTRACE=0
switches everything off.
"""


def _passes_through() -> bool:
    """Tell whether the command runs unchanged: switched off, or inside a living run whose settings count."""
    environ = os.environ
    is_inside = environ.get(env.RUN_ID) and os.path.isdir(environ.get(env.RUN_FOLDER, "")) and not is_over(environ)
    return bool(is_inside) or environ.get(env.AUTOTRACE, "").lower() in env.OFF


@click.command(
    cls=SettingsCommand,
    ignores=_passes_through,
    context_settings={
        "ignore_unknown_options": False,
        "allow_interspersed_args": False,
        "max_content_width": 110,
        "help_option_names": ["-h", "--help"],
    },
    epilog=EPILOG,
    options_metavar="[OPTIONS] [--]",
)
@click.version_option(autotrace.__version__, "--version", prog_name="autotrace")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND ...")
@click.pass_context
def main(ctx: click.Context, /, command: tuple[str, ...], **_: Any) -> None:
    """Run COMMAND as it is, and record every trajectory of its agents."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it now as it would end the command
    environ = dict(os.environ)
    try:
        program = find(command, environ)
    except CommandError as error:
        _fail(str(error), error.code)
    if _passes_through():
        _become(program, environ)
    earlier, environ = without_run(environ)

    # Imported late: a switched off or nested launch pays nothing for these modules.
    from autotrace.launch import run_setup
    from autotrace.launch.checks import misplaced, untraced
    from autotrace.launch.supervise import supervise

    try:
        options = Options.from_context(ctx)
        if dead := refuse_dead_keys(command):
            raise run_setup.RunSetupError(dead)
        bare = untraced(program, with_activation(environ)) if program.is_python else None
        run = run_setup.make(options, program, os.getpid(), environ, untraced=bare)
    except run_setup.RunSetupError as error:
        _fail(str(error), exit_codes.USAGE)
    environ = {**with_activation(environ), **run.variables}
    if not options.quiet:
        complain(f"run folder {run.folder}{after(earlier)}")
    for line in [*misplaced(command, run.variables[env.TRACE_BACKENDS].split(",")), *run.complaints]:
        complain(line)
    if options.supervise or options.delivery.get("stop_on") or os.getpid() == 1 or not program.is_python:
        supervise(program, environ, run.folder, options)
    _become(program, environ, run.folder)


def _become(program: Command, environ: dict[str, str], run_folder: str | None = None) -> NoReturn:
    try:
        program.execute(environ)
    except OSError as error:
        if run_folder is not None:
            files.touch(os.path.join(run_folder, layout.DRAIN))  # the shipper has nothing to wait for
        _fail(f"{program.path}: {error.strerror}", exit_codes.NOT_EXECUTABLE)


def _fail(message: str, code: int) -> NoReturn:
    complain(message)
    sys.exit(code)


if __name__ == "__main__":
    main()
