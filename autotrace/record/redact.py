"""Prompts are secrets: what a record may hold, enforced before it leaves the process. Runs on the flusher's thread."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable
from typing import Any

from autotrace.spec.plan import Settings

REDACTED = "<redacted>"
BUILTIN_KEYS = (
    "*api_key*",
    "*apikey*",
    "*api-key*",
    "*secret*",
    "*password*",
    "*passwd*",
    "authorization",
    "proxy-authorization",
    "access_token",
    "refresh_token",
    "auth_token",
    "bearer_token",
    "*_access_token",
    "*private_key*",
    "cookie",
    "set-cookie",
)
"""Key names whose values are never written. ``token_ids`` and friends match none of them."""

BUILTIN_PATTERNS = (
    r"\bsk-[A-Za-z0-9_\-]{20,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\b(?i:bearer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
)
"""Well-known shapes of credentials, replaced inside strings."""
_SUSPECT = ("sk-", "hf_", "gh", "github_pat_", "AKIA", "earer", "EARER", "://")


class Redactor:
    """Cleans one captured value after another; keeps a memo of key names, so a name is matched once."""

    def __init__(self, settings: Settings) -> None:
        globs = [re.compile(fnmatch.translate(glob.lower())) for glob in (*BUILTIN_KEYS, *settings.redact_keys)]
        self._globs = globs
        self._builtin = re.compile("|".join(f"(?:{pattern})" for pattern in BUILTIN_PATTERNS))
        self._patterns = [re.compile(pattern) for pattern in settings.redact_patterns]
        self._max_string = settings.max_string
        self._names: dict[str, bool] = {}
        self._hook: Callable[[str, Any], Any] | None = None
        if settings.redact_hook:
            module, _, name = settings.redact_hook.partition(":")
            self._hook = getattr(importlib.import_module(module), name)

    def secret(self, name: str) -> bool:
        """Whether values under ``name`` are never written."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) > 10_000:  # names made of data: do not grow without end
                self._names.clear()
            lower = name.lower()
            known = self._names[name] = any(glob.match(lower) for glob in self._globs)
        return known

    def clean(self, name: str, value: Any) -> Any:
        """``value`` (a snapshot) ready to be written."""
        if self.secret(name):
            return REDACTED
        if self._hook is not None:
            value = self._hook(name, value)
        return self._walk(value)

    def text(self, value: str) -> str:
        """A string without credentials, cut to the limit."""
        if len(value) > self._max_string:
            value = f"{value[: self._max_string]}… ({len(value) - self._max_string} characters more)"
        if any(mark in value for mark in _SUSPECT):
            value = self._builtin.sub(REDACTED, value)
        for pattern in self._patterns:
            value = pattern.sub(REDACTED, value)
        return value

    def _key(self, key: Any) -> str:
        kind = type(key)
        return self.text(key if kind is str else str(key) if kind in (int, float, bool) else kind.__name__)

    def _walk(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            return {
                name: REDACTED if self.secret(name) else self._walk(item)
                for name, item in ((self._key(key), item) for key, item in value.items())
            }
        if kind is list:
            if value and type(value[0]) in (int, float):
                return value
            return [self._walk(item) for item in value]
        if kind is int and not -(1 << 63) <= value < 1 << 64:
            return str(value)
        if kind is bytes:
            return {"…": f"{len(value)} bytes"}
        return value
