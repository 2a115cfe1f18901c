"""Targets of the user's own that cannot be bound: what ``autotrace check`` says about them, at the start of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from autotrace.config.plan import Plan
from autotrace.launch.command import Command
from autotrace.run.process import program

SECONDS = 1.0
"""CPU time after which the rest is left to ``autotrace check``: the command waits meanwhile."""
MOST = 10
"""Lines."""


def never_bound(plan: Plan, command: Command, environ: Mapping[str, str], folders: Sequence[str] = ()) -> list[str]:
    """What the user should know about their targets; a run does without it rather than fail. ``folders``: where else
    the program looks for modules."""
    try:
        return list(_complaints(plan, command, environ, folders))
    except Exception as error:
        return [f"could not look at the targets ({type(error).__name__}: {error}); autotrace check can"]


def _complaints(plan: Plan, command: Command, environ: Mapping[str, str], folders: Sequence[str]) -> Iterator[str]:
    """A line for each target that the user named and that what is installed cannot have. Nothing where another
    environment's Python runs the command, whose packages are not those of this one."""
    interpreter = command.interpreter(environ)
    if interpreter is None or _folder(interpreter) != _folder(sys.executable):
        return
    from autotrace.spec import verdict
    from autotrace.spec.compiler import SHIPPED
    from autotrace.spec.resolve import Resolver
    from autotrace.spec.sources import Installed

    own = [one for one in plan.targets if not one.where.startswith(f"{SHIPPED}/")]
    own = [one for one in own if not any(name.startswith("__main__") for name in one.names)]
    if not own:
        return
    resolver = Resolver(Installed(beside=[*_folders(command.argv, [one.where for one in own]), *folders]))
    deadline = time.thread_time() + SECONDS
    lines = 0
    for target in own:
        if lines == MOST or time.thread_time() > deadline:
            yield "autotrace check says the rest"
            return
        judged = verdict.judge(plan, resolver, expected={target.key}, only=[target])[0]
        if judged.failed:
            lines += 1
            yield f"{target.where}: {judged.name} will not be traced: {judged.reason}"


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _folders(argv: Sequence[str], places: Sequence[str]) -> list[str]:
    """Where the program and the lists lie."""
    from autotrace.spec.sources import folders_of

    kind, word = program(argv)
    script = [_folder(word)] if kind == "script" else []
    lists = dict.fromkeys(_folder(place.rpartition(":")[0]) for place in places)
    return [*script, *(folder for project in lists for folder in folders_of(project))]
