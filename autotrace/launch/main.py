"""``autotrace-run [OPTIONS] [--] COMMAND ...``: make a run, then become the command.

Same process id, arguments, exit code and signals as without the prefix. Where the command cannot wait for delivery
itself (no Python, or this is process 1 of a container) the launcher stays as its parent instead (``supervise``).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

import autotrace
from autotrace.config import environment as env
from autotrace.config import exit_codes
from autotrace.config.installation import with_activation
from autotrace.config.stderr import complain
from autotrace.launch.command import Command, CommandError, find, refuse_dead_keys
from autotrace.launch.options import OptionError, Options
from autotrace.launch.recording import KNOBS
from autotrace.run import files, layout

EPILOG = """
\b
Examples:
  autotrace-run python -m verl.trainer.main_ppo ...
  autotrace-run --tracking-uri http://mlflow:5000 --project gsm8k -- bash train.sh
  autotrace-run --spec my_agent.yaml python train.py
\b
Afterwards:
  autotrace ls        the trajectories of the newest run
  autotrace status    what was bound, called, delivered, dropped
\b
Every option is also a variable, so that AUTOTRACE=1 in the environment of an installed package suffices;
AUTOTRACE=0 switches everything off.
"""


def _recording_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of ``launch.recording``, in its order."""
    for knob in reversed(KNOBS):
        command = click.option(knob.option, knob.field, metavar=knob.metavar, help=f"{knob.help}  [{knob.variable}]")(
            command
        )
    return command


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False, "max_content_width": 110},
    epilog=EPILOG,
    options_metavar="[OPTIONS] [--]",
)
@click.option("--backend", "backends", multiple=True, metavar="NAME",
              help=f"mlflow (default), weave, otlp or jsonl; repeatable.  [{env.BACKEND}]")  # fmt: skip
@click.option("--tracking-uri", metavar="URI",
              help=f"MLflow store or server; default: MLFLOW_TRACKING_URI, else SQLite in the run folder's parent.  [{env.TRACKING_URI}]")  # fmt: skip  # noqa: E501
@click.option("--project", metavar="NAME",
              help=f"MLflow experiment or Weave project; default: veRL's trainer.project_name.  [{env.PROJECT}]")  # fmt: skip  # noqa: E501
@click.option("--experiment", metavar="NAME",
              help=f"Tag experiment_name; default: veRL's trainer.experiment_name.  [{env.EXPERIMENT}]")  # fmt: skip
@click.option("--spec", "specs", multiple=True, metavar="FILE",
              help=f"YAML list of your own methods to trace; repeatable.  [{env.SPECS}]")  # fmt: skip
@click.option("--run-dir", metavar="DIR",
              help=f"Each run makes a folder of its own in it; default ./autotrace-runs.  [{env.RUN_DIR}]")  # fmt: skip
@click.option("--drain-timeout", metavar="SECONDS",
              help=f"Longest wait for delivery at exit; default 60. The rest stays on disk.  [{env.DRAIN_TIMEOUT}]")  # fmt: skip  # noqa: E501
@click.option("--content", metavar="KIND",
              help=f"full (default), text (no token ids) or none (no prompts, responses, arguments).  [{env.CONTENT}]")  # fmt: skip  # noqa: E501
@_recording_options
@click.option("--supervise", is_flag=True,
              help=f"Stay as signal-forwarding parent instead of becoming the command.  [{env.SUPERVISE}]")  # fmt: skip
@click.option("--quiet", is_flag=True, help=f"Print nothing on success.  [{env.QUIET}]")
@click.version_option(autotrace.__version__, "--version", prog_name="autotrace")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND ...")
def main(command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND as it is and show every trajectory of its agents in MLflow (or Weave, OTLP, JSON lines)."""
    environ = dict(os.environ)
    try:
        program = find(command, environ)
    except CommandError as error:
        _fail(str(error), error.code)
    if environ.get(env.AUTOTRACE, "").lower() in env.OFF or _inside_a_run(environ):
        _become(program, environ)

    # Imported only now: a switched off or nested launch pays for none of it.
    from autotrace.launch import run_setup
    from autotrace.launch.supervise import supervise

    try:
        options = Options.resolve(given, environ)
        if dead := refuse_dead_keys(command):
            raise run_setup.Unusable(dead)
        run = run_setup.make(options, command, os.getpid(), environ)
    except (OptionError, run_setup.Unusable) as error:
        _fail(str(error), exit_codes.USAGE)
    environ = {**with_activation(environ), **run.variables}
    if not options.quiet:
        complain(f"run folder {run.folder}")
    if options.supervise or os.getpid() == 1 or not program.is_python:
        supervise(program, environ, run.folder, options)
    _become(program, environ, run.folder)


def _inside_a_run(environ: dict[str, str]) -> bool:
    return bool(environ.get(env.RUN_ID)) and os.path.isdir(environ.get(env.RUN_FOLDER, ""))


def _become(program: Command, environ: dict[str, str], run_folder: str | None = None) -> NoReturn:
    # Python ignores these two for itself; a program expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
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
