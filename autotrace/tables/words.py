"""List the words of a condition: columns of ``trajectories`` by name, a few shorter names, and the user's own names
within ``facts`` and ``attributes``."""

from __future__ import annotations

from dataclasses import dataclass

from autotrace.tables.columns import Column
from autotrace.tables.trajectories import TRAJECTORIES

NUMBER, TEXT, FLAG, LIST, ANY = "a number", "text", "true or false", "several texts", ""
STATUSES = ("OK", "OPEN", "ERROR", "TIMEOUT", "INTERRUPTED", "CANCELLED")
OF_FINDINGS = frozenset({"finding", "findings", "truncated", "tool_error", "trait", "traits"})
"""Words that are NULL or out of date where this release has not examined a trajectory."""
_TYPES = {"string": TEXT, "bool": FLAG, "int64": NUMBER, "float64": NUMBER, "list<string>": LIST}
_JSON_TYPES = {
    NUMBER: ("('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')", "DOUBLE"), TEXT: ("('VARCHAR')", "VARCHAR"),
    FLAG: ("('BOOLEAN')", "BOOLEAN"),
}  # fmt: skip
_LINE = "chr(10)"


@dataclass(frozen=True)
class Word:
    """Describe a name in a condition: ``sql`` over ``columns`` of the table."""

    sql: str
    kind: str
    meaning: str
    columns: frozenset[str]

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of values that the word can be compared with. A dataset's index is stored as text, and
        compares as a number with numbers."""
        if self.kind == LIST:
            return {TEXT}
        return {TEXT, NUMBER} if self.sql == '"sample_index"' else {self.kind}

    def as_kind(self, kind: str) -> str:
        """Return SQL for the word in a comparison with a value of ``kind``; NULL for a word of another kind."""
        if self.kind == ANY:
            types, cast = _JSON_TYPES[kind]
            return (
                f"CASE WHEN json_type({self.sql}) IN {types} THEN TRY_CAST(json_extract_string({self.sql}, '$')"
                f" AS {cast}) END"
            )
        if kind == NUMBER and self.kind == TEXT:
            return f"CASE WHEN regexp_full_match({self.sql}, '[0-9]+') THEN TRY_CAST({self.sql} AS HUGEINT) END"
        return self.sql

    @property
    def presence(self) -> str:
        """Return SQL that is NULL for a missing value; an empty list counts as missing."""
        if self.kind == LIST:
            return f"nullif(len({self.sql}), 0)"
        return self.text if self.kind == ANY else self.sql

    @property
    def text(self) -> str:
        """Return SQL for the word as text."""
        if self.kind == LIST:
            return f"coalesce(array_to_string({self.sql}, {_LINE}), '')"
        return f"json_extract_string({self.sql}, '$')" if self.kind == ANY else self.sql

    @property
    def shown(self) -> str:
        """Return SQL for the word as a 64-bit float, or as text."""
        if self.kind == LIST:
            return f"nullif(array_to_string({self.sql}, ' '), '')"
        return f"CAST({self.sql} AS DOUBLE)" if self.kind in (NUMBER, FLAG) else self.text

    @property
    def has(self) -> str:
        """Return SQL that is true where the parameter equals a text of the list, ignoring case."""
        return f"list_contains(string_split(lower({self.text}), {_LINE}), lower(?))"


def _own(column: Column) -> Word:
    return Word(f'"{column.name}"', _TYPES[column.type], column.meaning, frozenset({column.name}))


_COLUMNS = {
    column.name: _own(column)
    for column in TRAJECTORIES.columns
    if column.type in _TYPES and (not column.text or column.name == "prompt")
}
ALIASES = {
    "sample": "sample_index", "turns": "llm_calls", "duration": "duration_s", "finding": "findings", "trait": "traits",
}  # fmt: skip
"""Shorter name -> column."""
_SINCE = "CASE WHEN status = 'OPEN' THEN start_ns / 1e9 END"
_OPEN_SINCE = Word(_SINCE, NUMBER, "start, while it is open", frozenset({"status", "start_ns"}))
WORDS: dict[str, Word] = {
    **_COLUMNS,
    "validate": Word('coalesce("validate", false)', FLAG, "validation, not training", frozenset({"validate"})),
    **{name: _COLUMNS[column] for name, column in ALIASES.items()},
    "open_since": _OPEN_SINCE,
    "start": Word('("start_ns" / 1e9)', NUMBER, "start, seconds since 1970", frozenset({"start_ns"})),
}
"""Name -> word; the names are veRL's where veRL has a name."""
JSON = {
    "facts": "what became known later: facts.advantage, facts.reward_extra_info.acc",
    "attributes": "attributes of the first call",
}
"""Columns that hold the user's own names."""


def lookup(name: str) -> Word | None:
    """Return the word for ``name``; None: no word has that name."""
    column, _, rest = name.partition(".")
    if column in JSON and rest:
        path = "$" + "".join(f'."{part}"' for part in rest.split("."))
        document = f'CASE WHEN json_valid("{column}") THEN "{column}" END'
        return Word(f"json_extract({document}, '{path}')", ANY, "", frozenset({column}))
    return WORDS.get(name)


NAMES = (*WORDS, *(f"{name}.NAME" for name in JSON))
"""Every name that a condition may use."""
