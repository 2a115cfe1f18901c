"""Keep the keys and passwords of backends out of messages: a server that rejects a key may quote the key.

>>> os.environ["WANDB_API_KEY"] = "a1B2c3D4e5F6"
>>> without_own_keys("401: invalid key a1B2c3D4e5F6")
'401: invalid key ***'
"""

from __future__ import annotations

import json
import os
import re
from urllib.parse import quote, quote_plus, unquote

from autotrace.redact.credentials import without_credentials
from autotrace.redact.images import decoded
from autotrace.redact.masking import MASK, masked_variable
from autotrace.redact.secret_names import is_strong, says_nothing, secret_kind

_given: set[str] = set()
"""Holds keys from elsewhere than the environment: from netrc, or from an address on the command line."""
_SHORTEST = 6
"""Counts the characters of the shortest key that is searched for."""
_WORD = re.compile(r"[A-Za-z0-9+/=_~-]{8,}")
_PARTS = re.compile(r"[^\s,;&=:@/?\"'<>{}()]+")


def keep_secret(text: str | None) -> None:
    """Remember a key, or an address with a password, so that no message shows the key."""
    if text:
        _given.update(_keys_of("URI" if "://" in text else "KEY_API_KEY", text))


def without_own_keys(message: str) -> str:
    """Return ``message`` without any credential: neither a text of such a shape, nor a key that this process uses.

    A key is found as it is, in the escapes of URLs and JSON, in base64 (``Basic ...``), and in parts of at least eight
    characters.
    """
    keys = set(_given)
    for name, value in os.environ.items():
        keys |= _keys_of(name, value)
    for key in sorted(keys, key=len, reverse=True):
        for form in (key, quote(key, safe=""), quote_plus(key), json.dumps(key)[1:-1]):
            message = message.replace(form, MASK)

    def shown(word: re.Match[str]) -> str:
        text = decoded(word[0])
        is_part = is_strong(word[0]) and any(word[0] in key for key in keys)
        return MASK if is_part or any(key.encode() in text for key in keys) else word[0]

    return without_credentials(_WORD.sub(shown, message), MASK)


def _keys_of(name: str, value: str) -> set[str]:
    """Return the parts of a variable's value that stay hidden, and the whole value under the name of a secret."""
    if not secret_kind(name) and not any(sign in value for sign in ("://", "=", ":")):
        return set()
    if os.sep in value and os.path.exists(value):  # the place of a secret, or PWD: folders stay in messages
        return set()
    seen = masked_variable(name, value)
    hidden = {value.strip(), *_PARTS.findall(value)} if seen == MASK else set(_PARTS.findall(value))
    hidden -= set(_PARTS.findall(seen))
    return {key for part in hidden for key in (part, unquote(part)) if len(key) >= _SHORTEST and not says_nothing(key)}
