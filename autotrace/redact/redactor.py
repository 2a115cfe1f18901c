"""Prompts are secrets: what a record may hold, enforced before it leaves the process. Runs on the flusher's thread."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable
from typing import Any

from autotrace.config.plan import Settings
from autotrace.redact import secret_names
from autotrace.redact.images import LONG, described, without_images

REDACTED = "<redacted>"
BUILTIN_PATTERNS = (
    r"\bsk-[A-Za-z0-9_\-]{20,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\b(?i:bearer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
)
"""Well-known shapes of credentials, replaced inside strings."""
_SUSPECT = {
    "_": ("hf_", "ghp_", "gho_", "ghs_", "github_pat_"),
    "-": ("sk-",),
    ":": ("://",),
    "K": ("AKIA",),
    "r": ("earer",),
    "R": ("EARER",),
}
"""What each of them contains, by its rarest character: one character is looked for in 30 ns a kB, a word in 600."""
MAX_NAMES = 10_000
NUMBERS = frozenset({int, float})
"""Lists of nothing else are left alone."""
LONGEST_NUMBER = 4096
"""Bits of a number that is still written out."""

_WORDS = (
    "api_key", "apikey", "api-key", "access_key", "private_key", "secret", "passw", "authoriz", "credential", "_token",
    "-token", "token\"", "token'", "token=", "token\\", "cookie",
)  # fmt: skip
_NAMED = re.compile(
    r"(?P<name>(?i:api[_-]?key|access_key|private_key|secret|passw(?:or)?d|token|authorization|credential|cookie)"
    r"[\w.\-]{0,20})"
    r"(?:(?P<equals>=)[^&\s#\"']+|(?P<quote>\\?[\"'])(?P<colon>\s{0,9}:\s{0,9})(?P=quote)(?s:.{0,4096}?)(?:(?P=quote)|\Z))"
)
"""A credential under its name within a text: parameter of a URL, member of JSON (a tool's arguments arrive as text).
Begins with the name, for speed; what stands before it is looked at by ``_without_value``. The end of a text (it may
have been cut) ends a value, too."""
_BEFORE = re.compile(r"[?&\"'][\w.\-]{0,40}\Z")


class Redactor:
    """Cleans one captured value after another; keeps a memo of key names, so a name is matched once."""

    def __init__(self, settings: Settings) -> None:
        globs = [re.compile(fnmatch.translate(glob.lower())) for glob in settings.redact_keys]
        self._globs = globs
        self._builtin = re.compile("|".join(f"(?:{pattern})" for pattern in BUILTIN_PATTERNS))
        self._patterns = [re.compile(pattern) for pattern in settings.redact_patterns]
        self._max_string = settings.max_string
        self._names: dict[str, tuple[str, int]] = {}
        self._hook: Callable[[str, Any], Any] | None = None
        if settings.redact_hook:
            module, _, name = settings.redact_hook.partition(":")
            self._hook = getattr(importlib.import_module(module), name)

    def clean(self, name: str, value: Any) -> Any:
        """``value`` (a snapshot) ready to be written."""
        if (kind := self._key(name)[1]) and _hidden(kind, value):
            return REDACTED
        if self._hook is not None:
            value = self._hook(name, value)
        return self._walk(value)

    def text(self, value: str) -> str:
        """A string without credentials, cut to the limit."""
        if len(value) > LONG:
            value = without_images(value)
        if len(value) > self._max_string:
            value = f"{value[: self._max_string]}… ({len(value) - self._max_string} characters more)"
        for character, words in _SUSPECT.items():
            if character in value and any(word in value for word in words):
                value = self._builtin.sub(REDACTED, value)
                break
        if '"' in value or "=" in value or "'" in value:
            lower = value.lower()
            if any(word in lower for word in _WORDS):
                value = _NAMED.sub(_without_value, value)
        for pattern in self._patterns:
            value = pattern.sub(REDACTED, value)
        return value

    def _key(self, key: Any) -> tuple[str, int]:
        """A dict key as it is written, and which of its values are secret (``secret_names.kind``)."""
        kind = type(key)
        name: str = key if kind is str else str(key) if kind in (int, float, bool) else kind.__name__
        known = self._names.get(name)
        if known is None:
            if len(self._names) > MAX_NAMES:  # names made of data: do not grow without end
                self._names.clear()
            lower = name.lower()
            own = any(glob.match(lower) for glob in self._globs)
            known = self._names[name] = self.text(name), secret_names.SECRET if own else secret_names.kind(name)
        return known

    def _walk(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            cleaned = {}
            for key, item in value.items():
                name, secret = self._key(key)
                cleaned[name] = REDACTED if secret and _hidden(secret, item, value) else self._walk(item)
            return cleaned
        if kind is list:
            if NUMBERS.issuperset(map(type, value)):
                return value
            return [self._walk(item) for item in value]
        if kind is int:
            return number(value)
        if kind is bytes:
            return {"…": described(value)}
        return value


def _hidden(kind: int, value: Any, beside: Any = ()) -> bool:
    """Whether ``value``, under a name of ``kind``, is a secret. ``beside``: the names it stands with; what has a
    probability (``logprobs.content`` of OpenAI's API) is a model's token."""
    return kind == secret_names.SECRET or (type(value) in (str, bytes) and "logprob" not in beside)


def number(value: int) -> Any:
    """``value`` for an encoder that knows 64 bits: as it is, as text, or as its size."""
    if value.bit_length() < 64:
        return value
    return str(value) if value.bit_length() < LONGEST_NUMBER else {"…": f"int of {value.bit_length()} bits"}


def _without_value(found: re.Match[str]) -> str:
    """What a name and its value become; a name neither in a URL nor quoted stays as it is (code, for example)."""
    before = _BEFORE.search(found.string[max(0, found.start() - 41) : found.start()])
    if before is None or (before[0][0] in "?&") is not bool(found["equals"]):
        return found[0]
    if not secret_names.kind(before[0][1:] + found["name"]):
        return found[0]
    if found["equals"]:
        return f"{found['name']}={REDACTED}"
    return f"{found['name']}{found['quote']}{found['colon']}{found['quote']}{REDACTED}{found['quote']}"
