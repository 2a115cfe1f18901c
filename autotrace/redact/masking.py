"""Mask command lines and URIs: ``***`` replaces passwords, tokens and keys.

The rules are the rules for records (``redact.credentials``), except that on a command line any text behind a secret's
name is a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_plus, urlsplit, urlunsplit

from autotrace.config import environment as env
from autotrace.redact.credentials import in_command, without_credentials, without_userinfo
from autotrace.redact.secret_names import secret_kind

MASK = "***"

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)\Z")
_PASSWORD = re.compile(r"\A([\w.+-]+://[^/?@\s:]*:)[^/?@]*(?=@)")
_ASSIGNMENT = re.compile(r"[^\s?&:\"'{=]+=")


def masked_uri(uri: str) -> str:
    """Return ``uri`` without the password in front of the host (which may have blanks here), and without credentials of
    the query: ``?password=X``, also inside a quoted value."""
    address, mark, query = without_userinfo(_PASSWORD.sub(rf"\1{MASK}", uri), MASK).partition("?")
    return address + mark + "&".join(map(_masked_parameter, query.split("&")))


def _masked_parameter(text: str) -> str:
    plain = unquote_plus(text)
    shown = without_credentials(f"?{_masked(plain)}", MASK, any_value=True)[1:]
    return text if shown == plain else shown


def without_password(uri: str) -> str:
    """Return ``uri`` without ``user:password@``, still usable as an address; ``masked_uri`` is for people."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc or parts.scheme.startswith(("sqlite", "file")):
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def masked_command(command: Sequence[str]) -> list[str]:
    """Return ``command`` with secrets replaced: ``--token X``, ``a.api_key=X``, ``//u:X@host``.

    Secrets inside a word count, too: code, JSON, commands.
    """
    shown: list[str] = []
    secret_follows = False
    for word in command:
        shown.append(MASK if secret_follows and not word.startswith("-") else _masked(word))
        option = _OPTION.match(word)
        secret_follows = option is not None and bool(secret_kind(option["name"]))
    for at, word in in_command(command, MASK):
        if shown[at] == command[at]:
            shown[at] = word
    return shown


def masked_variable(name: str, value: str) -> str:
    """Return the value of an environment variable in a form that people may see."""
    return MASK if value and (secret_kind(name) or name == env.ALERT) else _masked(masked_uri(value))


def _masked(word: str) -> str:
    assignment = _ASSIGNMENT.match(word)
    if assignment is not None and assignment.end() < len(word) and secret_kind(assignment[0][:-1]):
        return f"{assignment[0]}{MASK}"  # all of it, spaces too
    return without_credentials(word, MASK, any_value=True)
