"""Describe the spec language: the keys of an entry. The page ``docs/spec-reference.md`` says what the keys mean.

The page has a section for each key of ``Entry``, and a table row for each key inside of another key. Mistakes in a spec
are explained with the words of the page, and ``make pages`` puts the words into the JSON Schema::

    texts()["role"].example          # tool
    texts()["tokens.prompt"].form    # a path such as result.token_ids, or a list of paths ...
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from autotrace.config.installation import carried
from autotrace.config.plan import BY_CODE, HOWS, ROLES

MODES = ("span", "count")
CHOICES = {"role": ROLES, "mode": MODES, "how": HOWS}
"""Maps a key to the words that the key accepts."""
Paths = str | list[str]


class Capture(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Chooses the recorded arguments. Default: all arguments except ``self``, within the size limits."""

    include: list[str] | None = None
    exclude: list[str] = []


class Tokens(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the token lists of a call. Token lists are stored once per trajectory and never cut."""

    prompt: Paths | None = None
    response: Paths | None = None
    logprobs: Paths | None = None
    mask: Paths | None = None


class Key(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the trajectory that facts are about, by attributes of the trajectory."""

    uid: Paths | None = None
    rollout_n: Paths | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Describes a batch of samples, for sampling an exact number of each batch."""

    group: Paths | None = None
    sample: Paths | None = None
    limit: Paths | None = None
    n: Paths | None = None


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Describes one target: a function or method to trace, and how."""

    target: str | list[str]
    versions: str | None = None
    subclasses: bool = False
    role: str = "span"
    label: str | None = None
    capture: Capture | None = None
    tokens: Tokens | None = None
    tokenizer: str | None = None
    attributes: dict[str, Paths] = {}
    facts: dict[str, Paths] = {}
    outcomes: dict[str, str] = {}
    batch: Batch | None = None
    rows: Paths = []
    chains: Paths = []
    id: Paths = []
    of: Paths | Key = []
    group: bool = False
    inside: bool = False
    final: Paths = []
    items: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    watch: bool = True
    how: str = BY_CODE
    mode: str = "span"
    optional: bool = False
    exclude: list[str] = []
    enabled: bool = True


File = list[str | Entry]
"""Type of a spec file: names and entries."""


@functools.cache  # msgspec evaluates every annotation again
def types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Map each key to its type, in the order of the model."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}


class KeyText(NamedTuple):
    """Holds the words of the page about a key."""

    meaning: str
    form: str
    """Says how to write the value, as the end of a sentence that begins with "write"."""
    example: str
    """Holds a YAML value."""


_SECTION = re.compile(r"## `(?P<key>\w+)`\n\n(.*) Write (.*)\.\n\n```yaml\n(?P=key): (.*)\n```\n")
_ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| `(.*)` \|$", re.MULTILINE)


@functools.cache
def texts() -> dict[str, KeyText]:
    """Read the page: ``role`` -> the words about the key, ``tokens.prompt`` -> the words about a key inside."""
    page = Path(carried("docs", "docs"), "spec-reference.md").read_text(encoding="utf-8")
    found: dict[str, KeyText] = {}
    for part in re.split(r"^(?=## )", page, flags=re.MULTILINE):
        if section := _SECTION.match(part):
            key, *words = section.groups()
            found[key] = KeyText(*words)
            found |= {f"{key}.{inner}": KeyText(*row) for inner, *row in _ROW.findall(part)}
    return found
