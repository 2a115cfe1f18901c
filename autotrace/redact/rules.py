"""Credentials that can be recognised by their shape: ``rules.json``, a line each, with what it must find, what it must
leave alone, and where the shape is documented. ``tests/redact/test_rules.py`` walks it.

Shapes follow what the issuers document; lengths are lower bounds, because issuers change them. Each shape of ``TOKENS``
and ``HOOKS`` holds a run of at least ``SHORTEST`` characters of ``[A-Za-z0-9_-]``, so a text without such a run needs
no further look (``redact.credentials``). What stands before its first run is at most as long as ``APART`` says of the
character in front of that.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHORTEST = 18
"""Characters of the shortest run of ``[A-Za-z0-9_-]`` in any credential below."""
APART = {".": 30, ":": 14, "/": 3, '"': 10, "'": 10, "=": 4, " ": 10}
"""Characters before a run, by the last of them, where a shape may begin: ``ya29.``, ``1//``, ``"pat": "``."""


@dataclass(frozen=True)
class Rule:
    """A kind of credential. ``pattern`` matches all of it, behind what it may have as ``head``, and never begins in the
    middle of a word."""

    name: str
    pattern: str
    masked: tuple[str, ...]
    kept: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Place(Rule):
    """Where a credential stands that has no shape of its own. ``pattern`` matches what leads to it as ``head``, and
    the credential; each text with a match contains ``sign`` (a character: found in no time) and one of ``needles``.

    ``needles`` are grouped by the fragment of a name (``named_values.FRAGMENTS``) that such a text has in small
    letters: most texts have none. Under ``""`` are those that contain one of ``SIGNS``. Under ``run`` are those that
    stand beside ``SHORTEST`` characters of a token."""

    sign: str
    needles: Mapping[str, tuple[str, ...]] = field(hash=False)
    reach: int | None = None
    """A match begins at a word, at most so many characters before a fragment that ``needles`` names; None: anywhere.
    A pattern takes a hundred times as long as to find such fragments."""

    def signs(self) -> frozenset[str]:
        """Fragments and ``SIGNS``: each text with a match has at least one of them."""
        near = " ".join(self.needles.get("", ())).lower()
        return frozenset(self.needles) | {sign for others in SIGNS.values() for sign in others if sign in near}


_DATA: dict[str, Any] = json.loads(pkgutil.get_data(__package__, "rules.json") or b"")
TOKENS = tuple(Rule(**rule) for rule in _DATA["tokens"])
"""Found anywhere in a text. A rule's prefix may follow ``_`` or ``-``, never a letter or digit."""
HOOKS = tuple(Rule(**rule) for rule in _DATA["hooks"])
"""Addresses that are secrets; each has ``hook`` in it."""
PLACES = tuple(Place(**rule) for rule in _DATA["places"])

PRIVATE_KEY_BEGINS = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?=(?P<dashes>-----))"
"""What follows is the key, up to its ``-----END`` (``redact.credentials``)."""
SCHEME = (
    r"(?<![A-Za-z0-9])(?P<scheme>(?i:bearer)\s+(?=[A-Za-z0-9._~+/-]{16})|Basic\s+(?=[A-Za-z0-9+/]*[0-9+/=][A-Za-z0-9+/=]*))"
    r"[A-Za-z0-9._~+/-]{8,}=*"
)
"""``Bearer X`` and ``Basic X`` where no name of a header stands before them."""

SIGNS = {
    "b": ("bearer", "basic "), "d": ("identified ",), "-": ("-u", " -p", " -a ", " -w ", "-securestring"), "@": ("@",),
    "=": ("sig=", "ignature="), "?": ("?code=", "??", "contrase?a"), "&": ("&code=",), "%": ("%40",),
    ":": (":5432:",),
}  # fmt: skip
"""One of these, or a fragment of a secret's name, stands in small letters in each text that holds a credential without
a run of ``SHORTEST``: in front of hosts, behind schemes, in ``PLACES``. None is longer than that. Each stands under a
character of its own, which is found in no time."""


def any_of(rules: tuple[Rule, ...]) -> str:
    """One pattern for all, which looks at the rules with the right first letter alone."""
    grouped: dict[str, list[str]] = {}
    for rule in rules:
        first = rule.pattern[0] if rule.pattern[0].isalnum() and rule.pattern[1] not in "?*+{" else ""
        grouped.setdefault(first, []).append(rule.pattern.removeprefix(first))
    return "|".join(f"{first}(?:{'|'.join(patterns)})" for first, patterns in grouped.items())
