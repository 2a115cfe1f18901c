"""Parse option values: sizes (``500MB``), a tokenizer (a folder, or a name on the Hugging Face hub), keep-rules.

Keep-rules (``--keep errors,random=0.1``) choose the groups of trajectories to deliver. ``ship.delivery.outbox`` applies
the rules to each group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

UNITS: Mapping[str, int] = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(text: str) -> int:
    """Parse a size such as ``500MB`` into bytes. Raises ``ValueError`` with a sentence for the user."""
    digits = text.strip().rstrip("BKMGTbkmgt ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        return int(float(digits) * UNITS[unit])
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a size; write for example 500MB or 1GB") from None


TOKENIZER_FILES = re.compile(r"tokenizer|vocab|tekken|.*\.(?:model|tiktoken|spm)\Z")
"""Matches the start of the names of files that a tokenizer is loaded from."""
_ON_HUB = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?\Z")
HUB_NAME = "Qwen/Qwen3-8B"


def located(name: str, beside: str) -> str:
    """Return ``name`` in a form that every process finds.

    A folder, which may be given relative to the folder ``beside``, becomes an absolute path. A name on the hub stays
    unchanged. Raises ``ValueError`` with the fault and a correction.
    """
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(name)))
    if os.path.isdir(path):
        if not any(map(TOKENIZER_FILES.match, os.listdir(path))):
            raise ValueError(f"the folder {path} holds no tokenizer: name the one with tokenizer.json")
        return path
    if os.path.isfile(path):
        raise ValueError(f"{path} is a file: name the folder that it is in")
    if name.startswith((".", "~", "/")) or not _ON_HUB.match(name):
        raise ValueError(f"there is no folder {path}; name a folder, or a tokenizer on the hub such as {HUB_NAME}")
    return name


KEEP_WORDS = "errors, spread, random=SHARE"


@dataclass(frozen=True)
class KeepRules:
    """Describes which groups are always kept, and the share of the rest."""

    errors: bool = False
    """Keeps groups with a trajectory that did not end OK."""
    spread: bool = False
    """Keeps groups whose rewards differ (groups with equal rewards teach GRPO nothing)."""
    random: float = 0.0
    """Share of all other groups, between 0 and 1."""

    @classmethod
    def parse(cls, words: Iterable[str]) -> KeepRules | None:
        """Parse the words after ``--keep``; None without words. Raises ``ValueError`` with a sentence for the user."""
        given: dict[str, Any] = {}
        for word in words:
            name, equals, text = word.strip().partition("=")
            if name in ("errors", "spread") and not equals:
                given[name] = True
            elif name == "random" and equals:
                given[name] = _share(text)
            else:
                raise ValueError(f"there is no keep-rule {word.strip()!r}; write one of {KEEP_WORDS}")
        return cls(**given) if given else None


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"the keep-rule random has no value {text!r}; write a number between 0 and 1")
    return share
