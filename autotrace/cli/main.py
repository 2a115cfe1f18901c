"""Run ``autotrace``: look at a run, finish a delivery, check a spec, look at an installation. One file a command."""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import logging
import os
import re
import traceback
from typing import Any

import click

import autotrace
from autotrace.cli.escaping import escaped
from autotrace.config import installation

if (_replaced := installation.replaced()) is not None:
    raise SystemExit(f"autotrace: {_replaced}")

COMMANDS = {
    "demo": ("autotrace.cli.open", "demo"),
    "open": ("autotrace.cli.open", "open_path"),
    "runs": ("autotrace.cli.list_runs", "runs"),
    "ls": ("autotrace.cli.ls", "ls"),
    "show": ("autotrace.cli.show", "show"),
    "diagnose": ("autotrace.cli.diagnose", "diagnose"),
    "why": ("autotrace.cli.why", "why"),
    "steps": ("autotrace.cli.steps", "steps"),
    "grep": ("autotrace.cli.grep", "grep"),
    "diff": ("autotrace.cli.diff", "diff"),
    "compare": ("autotrace.cli.compare", "compare"),
    "view": ("autotrace.cli.view", "view"),
    "status": ("autotrace.cli.status", "status"),
    "sql": ("autotrace.cli.sql", "sql"),
    "ship": ("autotrace.cli.ship", "ship"),
    "export": ("autotrace.cli.export", "export"),
    "init": ("autotrace.cli.init", "init"),
    "label": ("autotrace.cli.label", "label"),
    "mcp": ("autotrace.cli.mcp", "serve"),
    "skill": ("autotrace.cli.help", "skill"),
    "check": ("autotrace.cli.check", "check"),
    "doctor": ("autotrace.cli.doctor", "doctor"),
    "help": ("autotrace.cli.help", "help_page"),
}
"""Maps a command to module and object, imported only for use, so that no command pays for another."""


class Commands(click.Group):
    """Holds the group over ``COMMANDS``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which people meet the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None: no command has this name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            return None
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; for an option of a command, tell the user to write the option after the command."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = next((word for word in given if word in COMMANDS), "")
            command = self.get_command(ctx, name)
            option = error.option_name
            if command is None or not any(option in one.opts for one in command.params):
                raise
            raise click.UsageError(f"write {option} after the command: autotrace {name} {option} ...", ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; suggest the nearest command for an unknown name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = ["autotrace-run"] if args[0] == "run" else difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else "autotrace --help lists the commands"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run with output that contains nothing a terminal would obey."""
        with escaped():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report an expected failure in one sentence.

        Expected failures are files that this user may not read or write, a missing library, and a run that autotrace
        did not write in this form.
        """
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and _library(error) == "autotrace":
                raise
            if type(error).__name__ == "InterruptException" or str(error) == "Query interrupted":
                raise KeyboardInterrupt from None  # DuckDB's two forms of Ctrl-C
            if _has_no_reader(error):
                raise BrokenPipeError(errno.EPIPE, "nobody reads the output") from None
            from autotrace.cli.terminal import fail

            raise fail(_sentence(error)) from None


def _has_no_reader(error: BaseException) -> bool:
    """Tell whether ``error`` says, alone or in a group, that nobody reads the output: the client of ``mcp`` ended."""
    parts = getattr(error, "exceptions", ())
    return isinstance(error, BrokenPipeError) or (bool(parts) and all(map(_has_no_reader, parts)))


def _sentence(error: Exception) -> object:
    """Return the sentence for a person. An ``OSError`` with a file name, or without a number, is already a sentence."""
    from autotrace.run.info import not_readable
    from autotrace.tables.errors import QueryError, missing

    if isinstance(error, ModuleNotFoundError):
        return missing(_library(error), extra_of(_library(error)))
    if isinstance(error, QueryError):
        return error
    if isinstance(error, PermissionError) and error.filename is not None:
        closed = not os.access(error.filename, os.R_OK)
        return not_readable(error.filename) if closed else f"{error.filename}: permission denied"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"what was to be printed was not written: {error.strerror}"
    if isinstance(error, OSError) and (error.errno is None or error.filename is not None):
        return error
    from autotrace.sinks.own_keys import without_own_keys

    *_, place = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {without_own_keys(str(error)[:500])} ({place.filename}:{place.lineno})"
    return f"the run is damaged, or not one of autotrace's, or this is a bug: {what}"


def _library(error: ModuleNotFoundError) -> str:
    return (error.name or "autotrace").partition(".")[0]


def extra_of(library: str) -> str | None:
    """Return the extra that installs ``library``; None: no extra does."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = requires(installation.DISTRIBUTION) or []
    except PackageNotFoundError:  # a source tree
        return None
    extras = (re.search(r"extra == ['\"](\w+)['\"]", line) for line in needed if re.match(rf"{library}\b", line))
    return next((extra[1] for extra in extras if extra is not None and extra[1] != "dev"), None)


@click.group(cls=Commands, context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]})
@click.version_option(autotrace.__version__, prog_name="autotrace")
def main() -> None:
    """Read the trajectories of a run that autotrace-run recorded, and see what is wrong with it.

    RUN is a run folder, a folder of runs, the beginning of a run's name, or s3://bucket/lake. The default is the newest
    run in ./autotrace-runs (or in $AUTOTRACE_RUN_DIR).
    """
    gc.set_threshold(100_000)  # the search for cycles among many rows took an eighth of the time
    # Messages that the shipper logs to a file are printed by these commands.
    logging.getLogger("autotrace").addHandler(logging.NullHandler())


if __name__ == "__main__":
    main()
