"""What of a command line and of a URI may be written down: passwords, tokens and keys are replaced by ``***``.

The rules are those of records (``redact.credentials``); but whatever follows a secret's name on a command line is its
value, however it looks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from autotrace.redact.credentials import in_command, without_credentials, without_userinfo
from autotrace.redact.secret_names import secret_kind

MASK = "***"

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)\Z")
_ASSIGNMENT = re.compile(r"[^\s?&:\"'{=]+=")


def masked_uri(uri: str) -> str:
    """``uri`` without the password in front of its host."""
    return without_userinfo(uri, MASK)


def without_password(uri: str) -> str:
    """``uri`` without ``user:password@``: as an address, where ``masked_uri`` is for people."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc or parts.scheme.startswith(("sqlite", "file")):
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def masked_command(command: Sequence[str]) -> list[str]:
    """``command`` with what looks like a secret replaced: ``--token X``, ``a.api_key=X``, ``//u:X@host``; also within
    code, JSON and commands that are one word of it."""
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
    """The value of an environment variable as it may be shown."""
    return MASK if secret_kind(name) else masked_uri(value)


def _masked(word: str) -> str:
    assignment = _ASSIGNMENT.match(word)
    if assignment is not None and assignment.end() < len(word) and secret_kind(assignment[0][:-1]):
        return f"{assignment[0]}{MASK}"  # all of it, spaces too
    return without_credentials(word, MASK, any_value=True)
