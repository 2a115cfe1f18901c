"""What of a command line and of a URI may be written down: passwords, tokens and keys are replaced by ``***``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from autotrace.redact.secret_names import kind

MASK = "***"

_URL_PASSWORD = re.compile(r"(?P<head>[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:)[^/\s]+(?=@)")
_KNOWN_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b"
)
_NAMED = re.compile(
    r"""(?P<head>(?P<name>[A-Za-z_][\w.-]*)(?:\\?["'])?\s*[:=]\s*)"""
    r"""(?P<value>(?P<quote>\\?["'])(?s:.*?)(?:(?P=quote)|\Z)|(?:(?i:bearer|basic|token)\s+)?[^\s"'&;,}]+)"""
)
"""A name and its value: ``a.api_key=X``, ``Authorization: Bearer X``, ``"WANDB_API_KEY": "X"``, ``?api_key=X&b=1``."""
_OPTIONS = re.compile(r"(?P<head>(?<!\S)--?(?P<name>[A-Za-z][\w.-]*)\s+)(?P<value>[^\s-]\S*)")
"""The same as an option of a command within a word (``bash -c "run --token X"``)."""
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)\Z")


def masked_uri(uri: str) -> str:
    """``uri`` without the password in front of its host."""
    return _URL_PASSWORD.sub(lambda match: match["head"] + MASK, uri)


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
        if secret_follows and not word.startswith("-"):
            shown.append(MASK)
        else:
            shown.append(_masked(word))
        option = _OPTION.match(word)
        secret_follows = option is not None and bool(kind(option["name"]))
    return shown


def masked_variable(name: str, value: str) -> str:
    """The value of an environment variable as it may be shown."""
    return MASK if kind(name) else masked_uri(value)


def _masked(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and kind(name) and not re.search(r"[\s?&:\"'{]", name):
        return f"{name}={MASK}"  # all of it, spaces too
    for pattern in (_NAMED, _OPTIONS):
        word = pattern.sub(_without_value, word)
    return _KNOWN_SHAPES.sub(MASK, masked_uri(word))


def _without_value(found: re.Match[str]) -> str:
    if not kind(found["name"]):
        # what looks like its value may begin with a name of its own: `export A=1` behind `run:`
        return found["head"] + _NAMED.sub(_without_value, found["value"]) if found.re is _NAMED else found[0]
    quote = found.groupdict().get("quote") or ""
    return f"{found['head']}{quote}{MASK}{quote}"
