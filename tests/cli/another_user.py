"""Calls commands as a user who may not read what others closed: ``python -m tests.cli.another_user``, with a list of
commands as JSON on stdin. Root becomes another user; whoever else runs the tests is one already."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys

import click
import duckdb  # noqa: F401 - the other user may not read where it is installed
import pyarrow.dataset  # noqa: F401
from click.testing import CliRunner

import autotrace
from autotrace.cli.main import main

NOBODY = 65534
LOADED = {
    "cli", "export", "foreign", "insight", "launch", "redact", "run", "ship", "sinks", "spool", "tables", "trajectory",
    "view",
}  # fmt: skip


@click.command()
@click.argument("folder")
def opened(folder: str) -> None:
    """``autotrace.open``."""
    try:
        click.echo(repr(autotrace.open(folder)))
    except OSError as error:
        click.echo(str(error), err=True)
        raise click.exceptions.Exit(2) from None


def load() -> None:
    """Import now what the commands import when they are called."""
    for module in pkgutil.walk_packages(autotrace.__path__, "autotrace."):
        words = module.name.split(".")
        if words[1] in LOADED and "weave" not in words and words[-1] != "__main__":
            importlib.import_module(module.name)


if __name__ == "__main__":
    load()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    answers = []
    for words in json.load(sys.stdin):
        done = CliRunner().invoke(opened if words[0] == "door" else main, words[words[0] == "door" :])
        raised = None if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
        answers.append([done.exit_code, done.stdout, done.stderr, raised])
    json.dump(answers, sys.stdout)
