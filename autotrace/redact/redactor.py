"""Remove secrets from records before a record leaves the process. Runs on the flusher's thread."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Any

from autotrace.config.plan import Settings
from autotrace.config.scalars import MAX_INTEGER, integer, readable, shortened
from autotrace.redact import secret_names
from autotrace.redact.credentials import REDACTED as REDACTED
from autotrace.redact.credentials import in_command, signs, signs_of_lines, without_credentials
from autotrace.redact.images import LONG, Keep, described, may_be_image, without_images
from autotrace.redact.rules import OF_SCHEMA, SHORTEST
from autotrace.redact.secret_names import OF_A_MODEL, PARAMETER, SECRET, TEXT

MAX_NAMES = 10_000
NUMBERS = frozenset({int, float})
"""Types of numbers; lists of numbers alone are left alone."""
MOST_NUMBERS = 15
"""Limits the numbers under a secret's name that are no key: the code of a game."""
LONGEST_NAME = 200
"""Limits the characters of a text that may be a name."""
WORD = 24
"""Limits the characters of a text that is cleaned once and remembered."""
MEMBER_NAMES = ("name", "key", "header", "field", "variable", "Name", "Key", "selector", "element")
_MEMBER_NAMES = frozenset(MEMBER_NAMES)
MEMBER_VALUES = ("value", "val", "content", "default", "Value", "text")
"""Keys of a list of environment variables or headers: ``{"name": "api_key", "value": "..."}``."""

_SCHEMA_VALUES = ("default", "const", "examples", "enum")
"""Keys of a JSON schema that hold values."""
_KEY_BEGINS = re.compile(r"\s*-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----\s*\Z")
_KEY_LINE = re.compile(r"\s*(?:[A-Za-z0-9+/=]{1,200}|[A-Za-z-]{1,40}: [^\n]{1,200})?\s*")
"""Matches a line of a private key: base64, or a header before the base64."""


class Redactor:
    """Cleans captured values; remembers key names and short texts, so each is matched once."""

    def __init__(self, settings: Settings, keep_image: Keep | None = None) -> None:
        self._globs = [re.compile(fnmatch.translate(glob.lower())) for glob in settings.redact_keys]
        self._patterns = [re.compile(pattern) for pattern in settings.redact_patterns]
        self._max_string = settings.max_string
        self._keep_image = keep_image
        self._names: dict[str, tuple[str, int]] = {}
        self._words: dict[str, str] = {}
        self._hook: Callable[[str, Any], Any] | None = None
        if settings.redact_hook:
            module, _, name = settings.redact_hook.partition(":")
            self._hook = getattr(importlib.import_module(module), name)

    def clean(self, name: str, value: Any) -> Any:
        """Clean ``value`` (a snapshot) for writing."""
        if (kind := self._key(name)[1]) and _hidden(kind, value):
            return REDACTED
        if self._hook is not None:
            value = self._hook(name, value)
        return self.without_secrets(value)

    def is_by_item(self, name: str) -> bool:
        """Tell whether a list of dicts may be cleaned item by item with ``without_secrets``."""
        return self._hook is None and not self._key(name)[1]

    def text(self, value: str) -> str:
        """Return a string without credentials, cut to the limit."""
        if len(value) <= WORD:  # roles, types, tags: the same ones again and again
            cleaned = self._words.get(value)
            if cleaned is None:
                if len(self._words) >= MAX_NAMES:
                    self._words.clear()
                cleaned = self._words[value] = self._cleaned(value)
            return cleaned
        return self._cleaned(value)

    def signs(self, text: str) -> frozenset[str] | None:
        """Find the signs of credentials in ``text`` (``credentials.signs``); without signs, ``cleaned`` changes
        nothing.

        None: ``text`` may change for another reason.
        """
        return signs(text) if self._is_known(text) else None

    def signs_of_each(self, texts: Sequence[str]) -> list[frozenset[str] | None]:
        """Find the ``signs`` of each of ``texts``, faster."""
        if self._patterns:
            return [None] * len(texts)
        each = zip(texts, signs_of_lines(texts), strict=True)
        return [having if self._is_known(text) else None for text, having in each]

    def _is_known(self, text: str) -> bool:
        """Tell whether only the signs decide if ``text`` changes."""
        return not self._patterns and self._is_shown(text) and not may_be_image(text)

    def signs_of_whole(
        self, text: str, parts: Iterable[frozenset[str] | None], borders: Iterable[int]
    ) -> frozenset[str] | None:
        """Find the signs of a text whose parts have the given signs and meet at ``borders``; perhaps a superset."""
        near = "\n".join([text[max(0, border - SHORTEST) : border + SHORTEST] for border in borders])
        known = self.signs(near)
        if known is None or not self._is_shown(text) or may_be_image(text[:SHORTEST]):
            return None
        for part in parts:
            if part is None:
                return None
            known |= part
        return known

    def cleaned(self, text: str, known: frozenset[str] | None) -> str:
        """Clean a text whose ``signs`` are known, as ``text`` does."""
        return self._cleaned(text) if known is None else without_credentials(text, known=known)

    def _is_shown(self, text: str) -> bool:
        """Tell whether the text needs neither cutting nor re-encoding."""
        return len(text) <= self._max_string and (text.isascii() or readable(text) == text)

    def _cleaned(self, value: str) -> str:
        if len(value) > LONG:
            value = without_images(value, self._keep_image)
        value = without_credentials(value)
        for pattern in self._patterns:
            value = pattern.sub(REDACTED, value)
        if len(value) > self._max_string:
            value = shortened(value, self._max_string)
        return value if value.isascii() else readable(value)

    def _key(self, key: Any) -> tuple[str, int]:
        """Return a dict key as written, and the kind of values that are secret (``secret_names.kind``)."""
        kind = type(key)
        name: str = key if kind is str else str(key) if kind in (int, float, bool) else kind.__name__
        if len(name) > LONGEST_NAME:  # data: not remembered, as many as may come would take any memory
            return self.text(name), self._kind(name)
        entry = self._names.get(name)
        if entry is None:
            if len(self._names) > MAX_NAMES:  # names made of data: do not grow without end
                self._names.clear()
            entry = self._names[name] = self.text(name), self._kind(name)
        return entry

    def _kind(self, name: str) -> int:
        lower = name.lower()
        return SECRET if any(glob.match(lower) for glob in self._globs) else secret_names.kind(name)

    def without_secrets(self, value: Any) -> Any:
        """Clean ``value`` for writing, whatever the name is."""
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            return self._mapping(value)
        if kind is list:
            if NUMBERS.issuperset(map(type, value)):
                return value if all(map(_fits, value)) else [integer(item) for item in value]
            return self._sequence(value)
        if kind is int:
            return integer(value)
        if kind is bytes:
            return described(value)
        return value

    def _mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            name, secret = self._key(key)
            if name in cleaned:  # two keys that are credentials
                name = _numbered(name, cleaned)
            is_hidden = secret and _hidden(secret, item, value) and not secret_names.is_word(name, item)
            if is_hidden and type(item) is dict and "type" in item and OF_SCHEMA.issuperset(item):
                values = {each: REDACTED for each in _SCHEMA_VALUES if item.get(each) is not None}
                cleaned[name] = {**self._mapping(item), **values}
                continue
            cleaned[name] = REDACTED if is_hidden else self.without_secrets(item)
            if name == "params" and type(cleaned[name]) is dict and _hidden(PARAMETER, item.get("key")):
                cleaned[name]["key"] = REDACTED  # of an address
        if len(value) > 1 and not _MEMBER_NAMES.isdisjoint(value):
            for member in MEMBER_NAMES:
                named = value.get(member)
                if type(named) is str and len(named) <= LONGEST_NAME and (secret := self._key(named)[1]):
                    for other in MEMBER_VALUES:
                        typed = other != "text" or member in ("selector", "element")  # by a browser's tool
                        if other in value and typed and _hidden(secret, value[other], value):
                            cleaned[other] = REDACTED
        return cleaned

    def _sequence(self, value: list[Any]) -> list[Any]:
        """Clean a list. Hide the second item of a pair whose first is a secret's name (a header), and the item after an
        option such as ``--password``."""
        cleaned = [self.without_secrets(item) for item in value]
        in_key = False
        for at, item in enumerate(value):  # a PEM file, line by line
            if type(item) is not str:
                in_key = False
            elif in_key and _KEY_LINE.fullmatch(item):
                cleaned[at] = REDACTED
            else:
                in_key = "PRIVATE KEY" in item and _KEY_BEGINS.match(item) is not None
        pair = len(value) == 2
        for at, item in enumerate(value[:-1]):
            if type(item) is str and (pair or _is_option(item)) and len(item) <= LONGEST_NAME:
                secret = self._key(item.lstrip("-"))[1]
                if secret and _hidden(secret, value[at + 1], value):
                    cleaned[at + 1] = REDACTED
        for at, shown in in_command(value, REDACTED):
            cleaned[at] = shown
        return cleaned


def _is_option(word: str) -> bool:
    """Tell whether ``word`` is ``-x`` or ``--x``, rather than a line of dashes around a key."""
    return word.startswith("-") and not word.startswith("---")


def _hidden(kind: int, value: Any, beside: Any = ()) -> bool:
    """Tell whether ``value``, under a name of ``kind``, is a secret or holds a secret.

    ``beside`` holds the neighbouring names: a value with a probability (``logprobs.content`` of OpenAI's API) is a
    model's token. Flags, small numbers and placeholders stay.
    """
    if kind == secret_names.NOT or (kind == TEXT and any(name in beside for name in OF_A_MODEL)):
        return False
    form = type(value)
    if form is str:
        weak = kind == PARAMETER and not secret_names.is_strong(value)
        return value != "" and not weak and (any(map(str.isdigit, value)) or not secret_names.says_nothing(value))
    within = SECRET if kind == SECRET else PARAMETER
    if form is dict:
        is_of_a_model = "text" in value or any(name in value for name in OF_A_MODEL)
        return not is_of_a_model and any(_hidden(within, one) for one in value.values())
    if form is list and NUMBERS.issuperset(map(type, value)):
        return kind == SECRET and len(value) > MOST_NUMBERS
    if form is list:
        return (any if kind == SECRET else all)([_hidden(within, one) for one in value])
    if kind == SECRET:
        return form not in (bool, float, type(None)) and not (form is int and -10_000 < value < 10_000)
    return kind == TEXT and form is bytes


def _numbered(name: str, names: Collection[str]) -> str:
    """Append a number to ``name`` that makes the name differ from all ``names``."""
    return next(numbered for n in count(len(names) + 1) if (numbered := f"{name} #{n}") not in names)


def _fits(value: int | float) -> bool:
    return type(value) is float or -MAX_INTEGER <= value <= MAX_INTEGER
