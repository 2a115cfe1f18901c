"""Parse the values of ``autotrace-run``'s options and variables: text in, value out.

Each function raises ``ValueError`` with the fault and a correction; ``checked`` turns ``ValueError`` into
``OptionError``. ``Setting`` adds the option or variable that the text came from.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import click

from autotrace.config import environment as env
from autotrace.config.written import KeepRules, located

TRUE, FALSE = env.ON, ("", *env.OFF)


class OptionError(click.BadParameter):
    """Reports an unusable value; the text names the option or variable and a correction."""

    origin: str | None = None
    """Names the origin: ``option --backend`` or ``environment AUTOTRACE_BACKEND``."""

    def format_message(self) -> str:
        """Return one sentence, with the origin in front."""
        return f"{self.origin}: {self.message}" if self.origin else self.message

    def __str__(self) -> str:
        return self.format_message()

    def show(self, file: Any = None) -> None:
        """Print one line on stderr, as for every other error of the launcher; without the usage, which would not
        help."""
        click.echo(f"autotrace: {self.format_message()}", file=file, err=True)


class BackendOption(click.Option):
    """Describes ``--backend``; the help lists the backends that are installed now."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """List the backends only when help is printed."""
        from autotrace.sinks import registry

        help_text = self.help
        try:
            self.help = f"{help_text} One of {registry.help_text()}."
            return super().get_help_record(ctx)
        finally:
            self.help = help_text


def checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap ``read`` as the ``type`` of an option: ``ValueError`` becomes ``OptionError``."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, OSError) as error:
            raise OptionError(str(error)) from None

    return convert


def _number(kind: Callable[[str], float], least: float, most: float, wanted: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ValueError(f"{text!r} is not {wanted}")
        return number

    return read


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError
    return int(text)


_FINITE = sys.float_info.max
share = _number(float, 0, 1, "a number between 0 and 1")
seconds = _number(float, 0, _FINITE, "a number of seconds; write for example 60, or 0 not to wait")
count = _number(_whole, 0, _FINITE, "a whole number (0, 1, 2, ...)")
positive = _number(_whole, 1, _FINITE, "a whole number above 0; write for example 10")


def flag(text: str) -> bool:
    """Parse ``1`` or ``0``, and other spellings of yes and no."""
    if text.lower() not in TRUE + FALSE:
        raise ValueError(f"{text!r} is neither 1 nor 0")
    return text.lower() in TRUE


def words(text: str) -> tuple[str, ...]:
    """Return the words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def pattern(text: str) -> tuple[str, ...]:
    """Check a regular expression."""
    try:
        re.compile(text)
    except Exception as error:  # re.error, OverflowError, RecursionError, ValueError
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return (text,)


def hook(text: str) -> str:
    """Check the form ``MODULE:FUNCTION``; ``redact_hook`` checks later whether module and function exist."""
    if not re.fullmatch(r"[\w.]+:\w+", text):
        raise ValueError(
            f"{text!r} does not name a function; write MODULE:FUNCTION, for example my_project.clean:value"
        )
    return text


def tokenizer(text: str) -> str:
    """Parse a tokenizer: a folder or a name on the hub."""
    return located(text, os.getcwd())


def tables(text: str) -> str:
    """Return the absolute folder or URL to which tables can be copied."""
    from autotrace.tables import storage

    storage.check(text, find_spec)
    return storage.root_of(text)


def keep(text: str) -> tuple[str, ...]:
    """Check keep-rules; return the rules as written."""
    KeepRules.parse(words(text))
    return words(text)


def address(text: str) -> str:
    """Check an address ``http(s)://HOST...``."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable or not (text.isascii() and text.isprintable()) or " " in text:  # not shown: the text may be a secret
        raise ValueError("this is not an address; write for example https://hooks.example.com/autotrace")
    return text


def findings(text: str) -> tuple[str, ...]:
    """Check codes of findings, ours or from an installed package."""
    from autotrace.insight.registry import chosen

    return chosen(words(text))


def one_of(what: str, *words: str) -> Callable[[str], str]:
    """Build a parser that accepts only ``words``; ``what`` describes the words in the message."""

    def chosen(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not {what}; choose from {', '.join(words)}")
        return text

    return chosen


def backends(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Parse the values of a repeatable ``--backend``: ``--backend mlflow,jsonl`` equals giving the option twice."""
    names = tuple(dict.fromkeys(word for text in given or () for word in words(text)))
    for name in names:
        from autotrace.sinks import registry

        if name not in registry.names():
            error = OptionError(f"there is no backend {name!r}; choose from {', '.join(registry.names())}")
            error.origin = f"option {param.opts[0]}"
            raise error
    return names
