"""List credentials with a recognisable shape in ``rules.json``: a line each, with examples, counterexamples, source.

``tests/redact/test_rules.py`` walks the file. Shapes follow the issuers' documentation; lengths are lower bounds,
because issuers change lengths. Each shape of ``TOKENS`` and ``HOOKS`` holds a run of at least ``SHORTEST`` characters
of ``[A-Za-z0-9_-]``, so a text without such a run needs no further look (``redact.credentials``). ``APART`` limits the
length of a shape before the first run, by the character in front of the run.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHORTEST = 18
"""Characters of the shortest run of ``[A-Za-z0-9_-]`` in any credential of the rules."""
APART = {".": 30, ":": 14, "/": 3, '"': 10, "'": 10, "=": 4, " ": 10}
"""Maps the last character before a run to the longest beginning of a shape: ``ya29.``, ``1//``, ``"pat": "``."""


@dataclass(frozen=True)
class Rule:
    """Describes a kind of credential. ``pattern`` matches the whole credential behind an optional ``head``, and never
    begins in the middle of a word."""

    name: str
    pattern: str
    masked: tuple[str, ...]
    kept: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class CredentialContext(Rule):
    """Describes the place of a credential without a recognisable shape.

    ``pattern`` matches the text before the credential as ``head``, and the credential. Each text with a match contains
    ``sign`` (a character, which is found at once) and at least one of ``needles``. ``needles`` are grouped by the
    fragment of a name (``named_values.FRAGMENTS``) that such a text has in small letters: most texts have no fragment.
    The group ``""`` holds needles that contain one of ``SIGNS``. The group ``run`` holds needles beside ``SHORTEST``
    characters of a token.
    """

    sign: str
    needles: Mapping[str, tuple[str, ...]] = field(hash=False)
    reach: int | None = None
    """Limits the characters between the start of a match (at a word) and a fragment of ``needles``; None: anywhere.
    Matching a pattern takes a hundred times as long as finding such fragments."""

    def signs(self) -> frozenset[str]:
        """Return fragments and ``SIGNS``. Each text with a match has at least one of them."""
        near = " ".join(self.needles.get("", ())).lower()
        return frozenset(self.needles) | {sign for others in SIGNS.values() for sign in others if sign in near}


_DATA: dict[str, Any] = json.loads(pkgutil.get_data(__package__, "rules.json") or b"")
TOKENS = tuple(Rule(**rule) for rule in _DATA["tokens"])
"""Rules for tokens anywhere in a text. A rule's prefix may follow ``_`` or ``-``, never a letter or digit."""
HOOKS = tuple(Rule(**rule) for rule in _DATA["hooks"])
"""Rules for addresses that are secrets; each address has ``hook`` inside."""
PLACES = tuple(CredentialContext(**rule) for rule in _DATA["places"])
TYPES = frozenset(_DATA["types and words"])
"""Values in code and prose that are no secrets."""
NO_SECRET_KEYS = frozenset(_DATA["keys of a shell that are no secrets"])
"""Words before ``_KEY``: ``PRIMARY``."""
OF_A_TEXT = frozenset(_DATA["words before token"])
"""Words before ``_token`` that mean a piece of text, or a position in a listing."""
OF_SCHEMA = frozenset(_DATA["keys of a schema"])
"""Keys of a JSON schema: ``{"password": {"type": "string"}}`` declares an argument."""
PASSWORDS: tuple[str, ...] = tuple(_DATA["passwords"])
"""Words that mean ``password`` in other languages, in small letters."""
NO_SECRETS: tuple[str, ...] = tuple(_DATA["no secrets"])
"""Patterns of values that are no secrets, in small letters and digits alone."""

PRIVATE_KEY_BEGINS = r"-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-----?"
"""Matches the line in front of a private key."""
SCHEME = (
    r"(?<![A-Za-z0-9])(?P<scheme>(?i:bearer)\s+(?=[A-Za-z0-9._~+/-]{16})|(?P<user>Basic\s+)(?=[A-Za-z0-9+/]*[0-9+/=][A-Za-z0-9+/=]*))"
    r"(?P<value>[A-Za-z0-9._~+/-]{8,}=*)"
)
"""Matches ``Bearer X`` and ``Basic X`` without a header's name in front."""

SIGNS = {
    "b": ("bearer", "basic "), "d": ("identified ",), "-": ("-u", "-securestring"), " -": (" -p", " -a ", " -w "),
    "@": ("@",), "=": ("sig=", "ignature="), "?": ("?code=",), "&": ("&code=",), "%": ("%40",),
    "5": (":5432:",),
}  # fmt: skip
"""Maps one or two characters to signs. A text that holds a credential without a run of ``SHORTEST`` has a sign, or a
fragment of a secret's name, in small letters: in front of hosts, behind schemes, in ``PLACES``. No sign is longer than
``SHORTEST``. The map's keys are found at once."""


def any_of(rules: tuple[Rule, ...]) -> str:
    """Build a single pattern for all rules, which tries only the rules with the right first letter."""
    grouped: dict[str, list[str]] = {}
    for rule in rules:
        first = rule.pattern[0] if rule.pattern[0].isalnum() and rule.pattern[1] not in "?*+{" else ""
        grouped.setdefault(first, []).append(rule.pattern.removeprefix(first))
    return "|".join(f"{first}(?:{'|'.join(patterns)})" for first, patterns in grouped.items())
