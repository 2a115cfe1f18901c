"""Make a run for a process that ``autotrace-run`` did not start.

Such a process has ``AUTOTRACE=1`` and no run, or calls ``autotrace.start``. The agent calls ``ensure`` in every
process; ``ensure`` uses only the standard library and costs one look-up if a run exists. A separate process does the
work (``python -m autotrace.launch.prepare``), so that the host never imports a compiler of YAML.
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
    """Reports that the run cannot be made; the message says why and how to proceed. Nothing was started or changed."""


NEVER_MODULES = (
    # installers, builders, checkers
    "pip", "ensurepip", "venv", "virtualenv", "build", "setuptools", "hatchling", "pyproject_hooks", "compileall",
    "py_compile", "site", "sysconfig", "mypy", "ruff", "pre_commit",
    # helpers of a host program that could have started a run before
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
"""File names of scripts that are not the program to trace; version suffixes (``pip3.11``) are ignored."""

NEVER_PATHS = ("/ray/_private/", "/ray/dashboard/", "/ray/autoscaler/", "/torch/_inductor/", "/multiprocessing/")
"""Parts of paths of scripts that are not the program to trace: Ray's daemons and workers (a worker gets its run from
the driver)."""

NEVER_CODE = ("from multiprocessing", "import sys; from multiprocessing", "import setuptools, tokenize")
"""Beginnings of ``python -c`` code that is not the program to trace: resource tracker, fork server, spawned children,
builds."""


def ensure() -> bool:
    """Tell whether this process belongs to a run that goes on (afterwards ``AUTOTRACE_PLAN`` is set). Never raises.

    In the first process of an environment-only activation the call makes the run. If that fails, the reason is printed
    once and ``AUTOTRACE=0`` is set, so that no child tries again.
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
    """Return False for an interpreter command line (``sys.orig_argv``) that is obviously not the program to trace."""
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
    """Make a run for this process, in a separate process whose lines go to our stderr; return the run's variables.

    ``specs`` and ``settings``: the values that ``autotrace-run`` would get as ``--spec`` and as other options, by name.
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
