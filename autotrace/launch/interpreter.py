"""Whether the interpreter of a command would load the agent: another one than ours may not have autotrace."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from collections.abc import Mapping

from autotrace.config import environment as env
from autotrace.config.installation import DISTRIBUTION, PTH
from autotrace.launch.command import Command
from autotrace.run.process import ignores_environment

TIMEOUT = 10.0
"""Seconds for one start of the interpreter."""
_PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages",
             "local/lib/python3*/dist-packages")  # fmt: skip
_CODE = (
    "import sys\n"
    "if 'autotrace.bootstrap.activate' not in sys.modules: sys.exit(3)\n"
    "import msgspec, wrapt\n"
    "print('traced')\n"
)  # fmt: skip


def untraced(program: Command, environ: Mapping[str, str]) -> str | None:
    """One sentence when ``program`` is Python and would run without the agent; None when it would load it, or when
    that cannot be determined. Starts the interpreter once, and only where its folders hold no ``autotrace.pth``."""
    interpreter = program.interpreter(environ)
    if interpreter == program.path and ignores_environment(program.argv):
        return "warning: -E and -I tell Python to ignore its environment, so this command is not traced; leave them out"
    if interpreter is None or _has_pth(interpreter) or activates(interpreter, environ) is not False:
        return None
    return (
        f"warning: {interpreter} has no autotrace, so this command is not traced; install {DISTRIBUTION} for that "
        "interpreter"
    )


def activates(interpreter: str, environ: Mapping[str, str], timeout: float = TIMEOUT) -> bool | None:
    """Whether ``interpreter`` loads the agent and finds what it needs; None: it cannot be started."""
    variables = {**environ, env.AUTOTRACE: "1", env.PLAN: os.devnull, env.MODULES: "", env.MAIN_PID: ""}
    try:
        done = subprocess.run(
            [interpreter, "-c", _CODE],
            env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:  # also what is told of any child where SIGCHLD is ignored
        return b"traced" in done.stdout
    return False if done.returncode in (1, 3) else None


def _has_pth(interpreter: str) -> bool:
    """Our own environment, or one whose folders of packages hold ``autotrace.pth``."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
        return True
    return any(glob.glob(os.path.join(glob.escape(prefix), folder, PTH)) for folder in _PACKAGES)
