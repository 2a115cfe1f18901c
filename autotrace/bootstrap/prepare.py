"""A run for a process that was not started by ``autotrace-run``: one with ``AUTOTRACE=1`` and no run, or one that calls
``autotrace.start``.

``ensure`` is what the agent calls in every process; it is standard library only and costs one look-up where a run
exists. The work is done by a process of its own (``python -m autotrace.launch.prepare``), so that the host never
imports a compiler of YAML.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from autotrace.config import environment as env
from autotrace.config.stderr import complain
from autotrace.run.inherited import is_over
from autotrace.run.process import program, python

TIMEOUT = 60.0
"""Seconds after which the host goes on without tracing."""


class StartError(Exception):
    """The run cannot be made; the message says why and what to do. Nothing was started or changed."""


NEVER_MODULES = (
    # installers, builders, checkers
    "pip", "ensurepip", "venv", "virtualenv", "build", "setuptools", "hatchling", "pyproject_hooks", "compileall",
    "py_compile", "site", "sysconfig", "mypy", "ruff", "pre_commit",
    # helpers that belong to a host program which had its chance
    "multiprocessing", "torch._inductor", "triton", "ray._private", "ray.dashboard", "ray.autoscaler",
    # pages and tools of ours and of the backends
    "autotrace", "mlflow", "tensorboard", "wandb",
)  # fmt: skip
"""Top-level modules whose ``python -m`` is obviously not the program to trace."""

NEVER_SCRIPTS = (
    "pip", "uv", "virtualenv", "conda", "mamba", "poetry", "hatch", "cython", "cmake", "ninja", "meson", "ruff", "mypy",
    "pre-commit", "setup.py", "_in_process.py", "ray", "mlflow", "tensorboard", "wandb", "autotrace", "autotrace-run",
    "huggingface-cli", "hf",
)  # fmt: skip
"""The same for scripts, by file name; version suffixes (``pip3.11``) are ignored."""

NEVER_PATHS = ("/ray/_private/", "/ray/dashboard/", "/ray/autoscaler/", "/torch/_inductor/", "/multiprocessing/")
"""The same for scripts, by a part of their path: Ray's daemons and workers (a worker gets its run from the driver)."""

NEVER_CODE = ("from multiprocessing", "import sys; from multiprocessing", "import setuptools, tokenize")
"""The same for ``python -c``, by its beginning: resource tracker, fork server, spawned children, builds."""


def ensure() -> bool:
    """True when this process belongs to a run that goes on (afterwards ``AUTOTRACE_PLAN`` is set). Never raises.

    In the first process of an environment-only activation this makes the run; when that fails, the reason was
    printed once and ``AUTOTRACE=0`` is set, so that no child tries again.
    """
    if os.environ.get(env.PLAN) and not is_over(os.environ):
        return True
    if not sys.executable or not is_host_program(sys.orig_argv):
        return False
    try:
        variables = new_run()
    except StartError as error:
        complain(str(error))
        complain("the program runs without tracing")
        os.environ[env.AUTOTRACE] = "0"
        return False
    for name in env.OF_A_RUN:
        os.environ.pop(name, None)
    os.environ.update(variables)
    return True


def is_host_program(argv: list[str]) -> bool:
    """False for an interpreter command line (``sys.orig_argv``) that is obviously not the program to trace."""
    kind, word = program(argv)
    if kind == "m":
        return not any(word == name or word.startswith(name + ".") for name in NEVER_MODULES)
    if kind == "c":
        return not word.startswith(NEVER_CODE)
    if kind == "script":
        name = os.path.basename(word).rstrip("0123456789.")
        path = os.path.abspath(word).replace(os.sep, "/")
        return name not in NEVER_SCRIPTS and not any(part in path for part in NEVER_PATHS)
    return True


def new_run(specs: Sequence[str] = (), settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """Make a run for this process, in a process of its own, whose lines go to our stderr; the variables of the run.

    ``specs`` and ``settings``: what ``autotrace-run`` would get as ``--spec`` and as other options, by their names.
    Raises ``StartError``.
    """
    import json
    import subprocess

    from autotrace.config.installation import with_package

    environ = {**with_package(os.environ), env.AUTOTRACE: "0", "PYTHONSAFEPATH": "1"}
    request = {
        "pid": os.getpid(),
        "command": sys.orig_argv,
        "path": os.environ.get("PYTHONPATH"),
        "folders": list(map(str, sys.path)),
        "settings": {"spec": list(specs), **(settings or {})},
    }
    try:
        done = subprocess.run(
            python("autotrace.launch.prepare"),
            input=json.dumps(request, default=os.fspath).encode(),
            stdout=subprocess.PIPE,
            env=environ,
            timeout=TIMEOUT,
            check=False,
        )
        answer: dict[str, dict[str, str]] = json.loads(done.stdout)  # where SIGCHLD is ignored the exit code is lost
    except Exception as error:  # law 1
        raise StartError(f"cannot prepare a run ({type(error).__name__})") from error
    if "error" in answer:
        raise StartError(answer["error"])
    return answer["variables"]
