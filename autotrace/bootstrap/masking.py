"""What of a command line and of a URI may be written down: passwords, tokens and keys are replaced by ``***``."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

# The whole last word of a name, so that `data.max_tokens`, `tokenizer` and `pad_token_id` stay readable.
_SECRET = (
    r"(?:(?:api|private|secret)[_-]?key|access[_-]?key(?:[_-]?id)?|secret|password|passwd"
    r"|(?:(?:auth|access|hf|api)[_-]?)?token|credentials?|authorization)"
)
_ASSIGNMENT = re.compile(rf"(?is)^(?P<name>[^=\s]*?(?<![a-z]){_SECRET})=(?P<value>.+)$")
_OPTION = re.compile(rf"(?i)^--?(?:[a-z0-9]+[._-])*{_SECRET}$")
_URL_PASSWORD = re.compile(r"(?P<head>[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:)[^/\s@]+(?=@)")
_KNOWN_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b"
)


def masked_uri(uri: str) -> str:
    """``uri`` without the password in front of its host."""
    return _URL_PASSWORD.sub(lambda match: match["head"] + MASK, uri)


def masked_command(command: Sequence[str]) -> list[str]:
    """``command`` with what looks like a secret replaced: ``--token X``, ``a.api_key=X``, ``//u:X@host``."""
    shown: list[str] = []
    secret_follows = False
    for word in command:
        if secret_follows and not word.startswith("-"):
            shown.append(MASK)
        elif match := _ASSIGNMENT.match(word):
            shown.append(f"{match['name']}={MASK}")
        else:
            shown.append(_KNOWN_SHAPES.sub(MASK, masked_uri(word)))
        secret_follows = bool(_OPTION.match(word))
    return shown
