"""Make a run: compile specs, check backends, write the run folder, start the shipper, return the variables.

``autotrace-run`` uses the same code as a process that has ``AUTOTRACE=1`` and no run.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import autotrace
from autotrace.config import environment as env
from autotrace.config.plan import Plan, Settings
from autotrace.config.stderr import complain
from autotrace.launch.checks import missing, never_bound, switched_off
from autotrace.launch.command import Command
from autotrace.launch.options import Options, unknown_variables
from autotrace.redact.masking import masked_command, masked_uri
from autotrace.run import files, layout, remote_node, shipper_process
from autotrace.run.info import RunInfo
from autotrace.sinks import registry
from autotrace.sinks.backend import Backend, Destination
from autotrace.spool.blobs import keep_tokenizer

ADAPTED = ("ray",)
"""Names libraries that an adapter changes although no spec names the libraries (Ray's workers need the variables)."""


_ELSEWHERE = f"choose another folder with --run-dir or {env.RUN_DIR}"


class RunSetupError(Exception):
    """Reports that a run cannot be made; the message says why and how to proceed. Nothing was started."""


@dataclass(frozen=True)
class PreparedRun:
    """Holds a run whose folder and shipper exist."""

    folder: str
    plan: Plan
    variables: Mapping[str, str]
    """Variables that the run's processes need in the environment."""
    complaints: Sequence[str]
    """Lists a sentence for each setting and entry of the user's that has no effect."""


def make(
    options: Options, program: Command, main_pid: int, environ: Mapping[str, str], folders: Sequence[str] = (),
    untraced: str | None = None,
) -> PreparedRun:  # fmt: skip
    """Make a run for ``program``, which also looks for modules in ``folders``. ``untraced``: why the program itself is
    not traced.

    Raises ``RunSetupError``; then nothing was started and no folder is left.
    """
    from autotrace.spec.compiler import watched_modules, without_entry

    command, plan = program.argv, _plan(options)
    complaints = [f"warning: {untraced}"] if untraced else []
    complaints += [*without_entry(options.specs), *never_bound(plan, program, environ, folders)]
    if options.strict and complaints:
        raise RunSetupError("\n".join([*complaints, "--strict: not started"]))
    backends = checked_backends(options)
    uri = absolute_uri(options.tracking_uri, backends)
    hook = options.settings.get("redact_hook")
    if hook is not None and (trouble := missing(hook, command)):
        raise RunSetupError(f"{options.origins.get('redact_hook')}: {hook!r}: {trouble}")
    destination = Destination(uri, options.origins)
    _ask(backends, lambda backend: backend.prepare(destination))
    folder = _folder(options)
    text = plan.dumps()
    try:
        _write(folder, options, plan, text, command, main_pid, uri, untraced)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RunSetupError(f"cannot write into {folder} ({error.strerror}); {_ELSEWHERE}") from error
    variables = {
        env.AUTOTRACE: "1",
        env.RUN_ID: os.path.basename(folder),
        env.RUN_FOLDER: folder,
        env.RUN_OWNER: str(os.stat(folder).st_uid),
        env.PLAN: os.path.join(folder, layout.PLAN_JSON),
        env.PLAN_DIGEST: remote_node.digest(text),
        env.MODULES: ",".join(sorted({*watched_modules(plan), *ADAPTED})),
        env.TRACE_BACKENDS: ",".join(registry.names()),
        env.MAIN_PID: f"{main_pid}:{os.uname().nodename}",
        # Without the variable a process that imported mlflow may never exit (15 of 41 runs of MLflow 3.18 without
        # internet).
        "MLFLOW_DISABLE_TELEMETRY": environ.get("MLFLOW_DISABLE_TELEMETRY", "true"),
        **({env.QUIET: "1"} if options.quiet else {}),
    }
    # Only the shipper's environment gets addresses as given, secrets included: run.json and Ray's pages show less.
    secret = {env.TRACKING_URI: uri, env.ALERT: options.alert}
    given = {name: value for name, value in secret.items() if value is not None}
    shipper_process.start(folder, {**environ, **variables, **given})
    others = [*unknown_variables(environ), *switched_off(command, options, registry.names())]
    return PreparedRun(folder, plan, variables, [*others, *complaints])


def absolute_uri(uri: str | None, backends: Sequence[Backend]) -> str | None:
    """Return the tracking URI in a form that does not depend on the working directory."""
    for backend in backends:
        uri = None if uri is None else backend.absolute_uri(uri)
    return uri


def checked_backends(options: Options) -> list[Backend]:
    """Check the backends of ``options`` as far as possible without a connection.

    Raises ``RunSetupError``.
    """
    backends = []
    for name in options.backends or (registry.DEFAULT,) * (options.tracking_uri is not None):
        try:
            backends.append(registry.usable(name))
        except registry.BackendError as error:
            chosen = options.origins.get("backends", "default")
            by = chosen if options.backends else f"{options.origins.get('tracking_uri')} names an MLflow store"
            raise RunSetupError(f"{by}: {error}, or choose --backend jsonl") from error
    destination = Destination(absolute_uri(options.tracking_uri, backends), options.origins)
    _ask(backends, lambda backend: backend.check(destination))
    return backends


def _plan(options: Options) -> Plan:
    from autotrace.spec.compiler import compile_plan

    settings = Settings(content=options.content, **options.settings)
    if not options.specs:
        return compile_plan(settings=settings)
    from autotrace.spec.document import SpecError  # imports PyYAML, which takes longer than all the rest

    try:
        return compile_plan(options.specs, settings=settings)
    except SpecError as error:
        raise RunSetupError(str(error)) from error


def _folder(options: Options) -> str:
    """Make a new folder ``YYYYMMDD-HHMMSS-MMMXXXXXX`` (UTC). Names sort by time: ``MMM`` are the milliseconds, in
    hex."""
    parent = os.path.abspath(options.run_dir)
    now = datetime.now(timezone.utc)
    name = f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03x}{secrets.token_hex(3)}"
    folder = os.path.join(parent, name)
    try:
        files.folder(layout.spool_of(folder))
        files.folder(os.path.join(folder, layout.BLOBS))
        reason = files.exposed(folder)
    except OSError as error:
        raise RunSetupError(f"cannot make a run folder in {parent} ({error.strerror}); {_ELSEWHERE}") from error
    if reason is not None:
        shutil.rmtree(folder, ignore_errors=True)
        raise RunSetupError(f"no run is made in {parent}: {reason}; {_ELSEWHERE}")
    mode = os.stat(parent).st_mode & 0o7777
    if not options.quiet and mode & 0o044:
        complain(
            f"{parent} can be read by other users (mode {mode:o}); the runs in it cannot, but their names can be seen: "
            f"chmod 700 {shlex.quote(parent)}"
        )
    return folder


def _write(
    folder: str, options: Options, plan: Plan, text: str, command: Sequence[str], main_pid: int, uri: str | None,
    untraced: str | None,
) -> None:  # fmt: skip
    delivery: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options.delivery.items()
    }
    files.replace(os.path.join(folder, layout.PLAN_JSON), text.encode())
    RunInfo(
        run_id=os.path.basename(folder),
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=masked_command(command),
        host=os.uname().nodename,
        main_pid=main_pid,
        backends=list(options.backends),
        tracking_uri=None if uri is None else masked_uri(uri),
        project=options.project,
        experiment=options.experiment,
        drain_timeout=options.drain_timeout,
        untraced=untraced or "",
        plan_digest=plan.digest,
        version=autotrace.__version__,
        origins=dict(options.origins),
        **delivery,
        tokenizers=kept_tokenizers(
            folder, [options.delivery.get("tokenizer"), *(target.tokenizer for target in plan.targets)]
        ),
    ).write(folder)


def kept_tokenizers(folder: str | Path, names: Iterable[str | None]) -> dict[str, str]:
    """Copy the folders among ``names`` into the run folder; return ``RunInfo.tokenizers``. Raises ``OSError``."""
    copies = {name: keep_tokenizer(folder, name) for name in dict.fromkeys(names) if name is not None}
    return {name: copy for name, copy in copies.items() if copy is not None}


def _ask(backends: Sequence[Backend], question: Callable[[Backend], None]) -> None:
    """Ask each of ``backends`` the ``question``. Raises ``RunSetupError`` with the first objection."""
    for backend in backends:
        try:
            question(backend)
        except ValueError as error:
            raise RunSetupError(str(error)) from error
