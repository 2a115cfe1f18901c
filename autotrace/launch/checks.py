"""Check the user's targets, the redaction hook and the interpreter before the command starts."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from autotrace.config import environment as env
from autotrace.config.installation import PTH, again
from autotrace.config.plan import Plan
from autotrace.launch.command import Command
from autotrace.launch.options import Options
from autotrace.run.process import ignores_environment, program, python_code

SECONDS = 1.0
"""Seconds of CPU time for the check of targets, because the command waits; ``autotrace check`` shows the rest."""
MOST = 10
"""Limits the printed lines."""


_TRACE = re.compile(r"(?:\.rollout\.trace|trainer\.rollout_trace)\.backend=['\"]?(\w+)")
"""Matches the backend of veRL's own trace on a command line."""
_NO_TRACE = ("null", "none")


def switched_off(words: Sequence[str], options: Options, known: Sequence[str]) -> list[str]:
    """Return a line if ``words`` name a backend for veRL's own trace that gets nothing in this run.

    autotrace switches that trace off for each ``known`` backend, and delivers to the backends of ``options``. A run for
    which the user chose no backend delivers to the backend that veRL's configuration names. A backend that is not
    ``known`` is left to veRL, whose V1 trainer never calls such a backend (``trace_this_sample = False`` in
    ``agent_loop_tq.py`` of 0.9.1).
    """
    chosen = options.backends
    named = dict.fromkeys(name for word in words for name in _TRACE.findall(word) if name.lower() not in _NO_TRACE)
    if unknown := [name for name in named if name not in known]:
        return [
            f"veRL's V1 trainer (its default) records nothing into {name}, and autotrace has no backend {name}; there "
            f"are {', '.join(known)}, and autotrace help backends shows how to add one"
            for name in unknown
        ]
    if options.origins.get("backends") == "default":
        return []
    return [
        f"veRL's own trace into {name} is switched off, and this run delivers to {', '.join(chosen) or 'no backend'}; "
        f"to have the trajectories in {name} too, add --backend {name}"
        for name in named
        if name not in chosen
    ]


_OURS = ("--tracking-uri", "--drain-timeout", "--token-facts", "--spool-limit", "--step-budget", "--stop-on")
"""Lists options that other programs hardly have."""


def misplaced(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a line for each of autotrace's options among ``words``, the command. ``known`` lists the backends."""
    lines = []
    for word, following in zip(words[1:], (*words[2:], ""), strict=False):
        option, _, value = word.partition("=")
        value = value or following
        by_value = {"--spec": value.endswith((".yaml", ".yml")), "--backend": value in known}
        if by_value.get(option, option in _OURS):
            name = os.path.basename(words[0])
            lines.append(f"{option} after {name} goes to the program; options of autotrace come before {name}")
    return lines


def never_bound(plan: Plan, command: Command, environ: Mapping[str, str], folders: Sequence[str] = ()) -> list[str]:
    """Report the user's targets that cannot be bound; the run goes on without such a target.

    ``folders`` lists further folders in which the program looks for modules.
    """
    try:
        return list(_complaints(plan, command, environ, folders))
    except Exception as error:
        return [f"could not look at the targets ({type(error).__name__}: {error}); autotrace check can"]


def _complaints(plan: Plan, command: Command, environ: Mapping[str, str], folders: Sequence[str]) -> Iterator[str]:
    """Yield a line for each user target that the installed packages cannot provide.

    Yields nothing if another environment's Python runs the command, because the packages there differ.
    """
    interpreter = command.interpreter(environ)
    if interpreter is None or _folder(interpreter) != _folder(sys.executable):
        return
    own = [one for one in plan.targets if not one.is_shipped]
    if not own:
        return
    from autotrace.spec import verdict
    from autotrace.spec.resolve import Resolver
    from autotrace.spec.sources import Installed

    resolver = Resolver(Installed(beside=[*_folders(command.argv, [one.where for one in own]), *folders]))
    deadline = time.thread_time() + SECONDS
    lines = 0
    for target in own:
        if lines >= MOST or time.thread_time() > deadline:
            yield "autotrace check says the rest"
            return
        judged = verdict.judge(plan, resolver, expected={target.key}, only=[target], most=1)[0]
        for where, complaint in judged.complaints:
            lines += 1
            yield f"{where}: {complaint}"


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _folders(argv: Sequence[str], places: Sequence[str]) -> list[str]:
    """List the folders of the program and of the specs."""
    from autotrace.spec.sources import folders_of

    kind, word = program(argv)
    script = [_folder(word)] if kind == "script" else []
    lists = dict.fromkeys(_folder(place.rpartition(":")[0]) for place in places)
    return [*script, *(folder for project in lists for folder in folders_of(project))]


def missing(hook: str, command: Sequence[str]) -> str | None:
    """Explain in one sentence why ``command`` cannot use ``hook``; None if the hook is usable. Imports no user
    module."""
    from autotrace.spec.resolve import Resolver
    from autotrace.spec.sources import Installed

    scripts = [os.path.dirname(os.path.abspath(word)) for word in command if word.endswith(".py")]
    resolver = Resolver(Installed(beside=scripts))
    name = hook.partition(":")[0]
    module = resolver.module(name)
    if module is None:
        return f"there is no module {name} beside the program or in this environment; put its folder on PYTHONPATH"
    if resolver.find(hook) is None:
        return f"{module.file.path} has no {hook.partition(':')[2]}"
    return None


TIMEOUT = 10.0
"""Seconds for one start of the interpreter."""
_PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages",
             "local/lib/python3*/dist-packages")  # fmt: skip
_CODE = (
    "\nif 'autotrace.bootstrap.activate' not in sys.modules: sys.exit(3)\n"
    "import msgspec, wrapt\n"
    "print('traced')\n"
)  # fmt: skip


def untraced(command: Command, environ: Mapping[str, str]) -> str | None:
    """Return the reason if ``command`` is Python and would run without the agent.

    None if the interpreter loads the agent, or if nobody can tell. The function starts the interpreter once, and only
    if the interpreter's folders hold no ``autotrace.pth``.
    """
    interpreter = command.interpreter(environ)
    if interpreter == command.path and ignores_environment(command.argv):
        return "-E and -I tell Python to ignore its environment, so this command is not traced; leave them out"
    if interpreter is None or _has_pth(interpreter) or activates(interpreter, environ) is not False:
        return None
    return f"{interpreter} has no autotrace, so this command is not traced; {again(interpreter)}"


def activates(interpreter: str, environ: Mapping[str, str], timeout: float = TIMEOUT) -> bool | None:
    """Tell whether ``interpreter`` loads the agent and the agent's libraries; None if the interpreter does not
    start."""
    variables = {**environ, env.AUTOTRACE: "1", env.PLAN: os.devnull, env.MODULES: "", env.MAIN_PID: ""}
    try:
        done = subprocess.run(
            python_code(interpreter, _CODE),
            env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:  # also what is told of any child where SIGCHLD is ignored
        return b"traced" in done.stdout
    return False if done.returncode in (1, 3) else None


def _has_pth(interpreter: str) -> bool:
    """Tell whether the interpreter is in our environment, or its package folders hold ``autotrace.pth``."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
        return True
    return any(glob.glob(os.path.join(glob.escape(prefix), folder, PTH)) for folder in _PACKAGES)
