"""All trajectories of a run as columns: what the table, the scatter, the curves and ``--where`` of the page read.

In two parts, so that the page can be used before the second is there: what the table shows, and the rest, which is
mostly JSON in the state (times, facts, attributes).
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.ship.run_reader import RunReader
from autotrace.ship.store.columns import COLUMNS
from autotrace.view.pack import MISSING, Numbers, Words, pack

_NUMBERS = ("step", "rollout_n", "validate", "reward", "turns", "tool_calls", "prompt_tokens", "response_tokens")
_TEXTS = ("sample_index", "status", "error")
_TIMES = {"start": "start_ns / 1e9", "duration": "(end_ns - start_ns) / 1e9"}
_GROUP = "CASE WHEN group_key > '' THEN group_key ELSE trace_id END"
_MORE_NUMBERS = ("attempt", "spans", "late_spans")
_FLAGS = ("truncated", "tool_error")
_MORE_TEXTS = ("uid", "data_source", "project_name", "experiment_name", "name", "role")
MOST = 60
"""Columns from the user's own names."""
MOST_PATHS = 4 * MOST
"""Names of the user's that are looked at, those of what holds others too."""
MAX_TEXT = 500
"""Characters of one text."""
MAX_NAME = 200
"""Characters of a user's name; a longer one does not become a column."""


class Part(NamedTuple):
    """What was packed, and its trajectories in order: ids of 16 bytes each."""

    body: bytes
    ids: bytes


def main(reader: RunReader, chosen: Container[str] | None = None) -> Part:
    """The columns that need no JSON to be read. Times are seconds since 1970, ``duration`` seconds. ``chosen``: ids of
    the trajectories; None: all."""
    numbers = {name: Numbers() for name in (*_TIMES, *_NUMBERS)}
    texts = {name: Words(MAX_TEXT) for name in (*_TEXTS, "group")}
    ids: list[str] = []
    given = [f"({sql}) AS {name}" for name, sql in {**_TIMES, "group_or_id": _GROUP}.items()]
    for rows in _rows(reader, ("trace_id", *given[:2], *_NUMBERS, *_TEXTS, given[2]), chosen):
        of_ids, *others = zip(*rows, strict=True)
        ids += of_ids
        columns: list[Numbers | Words] = [*numbers.values(), *texts.values()]
        for column, values in zip(columns, others, strict=True):
            column.extend(values)
    packed = bytes.fromhex("".join(ids))
    return Part(_packed(len(ids), numbers, texts, {"trace_id": array("B", packed)}), packed)


def more(reader: RunReader, chosen: Container[str] | None = None) -> Part:
    """The other columns, in the same order of rows: ``uid``, ``finding`` (codes with blanks between), ``queue_s``,
    ``facts.advantage``, ``attributes.agent_name``. At most ``MOST`` of the user's names."""
    found = _Found()
    ids: list[str] = []
    own = {name: Numbers() for name in (*_MORE_NUMBERS, *_FLAGS)}
    words = {name: Words(MAX_TEXT) for name in (*_MORE_TEXTS, "finding")}
    flags = [f"({COLUMNS[name].sql}) AS {name}" for name in _FLAGS]
    names = ("trace_id", "times", "facts", "attributes", "profile", *_MORE_NUMBERS, *flags, *_MORE_TEXTS)
    for rows in _rows(reader, names, chosen):
        of_ids, times, facts, attributes, profiles, *others = zip(*rows, strict=True)
        ids += of_ids
        found.chunk(times, facts, attributes)
        words["finding"].extend([_finding(profile) for profile in profiles])
        for name, values in zip((*own, *_MORE_TEXTS), others, strict=True):
            (own[name] if name in own else words[name]).extend(values)
    numbers, texts = found.columns()
    return Part(_packed(found.count, {**numbers, **own}, {**texts, **words}, {}), bytes.fromhex("".join(ids)))


def _finding(profile: str) -> str | None:
    return " ".join(codes(decode(profile)) or ()) or None if '["AT-' in profile else None


def _packed(
    count: int, numbers: Mapping[str, Numbers], texts: Mapping[str, Words], own: Mapping[str, array[Any]]
) -> bytes:
    arrays: dict[str, array[Any]] = {**own, **{name: column.values for name, column in numbers.items()}}
    arrays |= {name: column.values for name, column in texts.items()}
    return pack({"count": count, "words": {name: list(column.words) for name, column in texts.items()}}, arrays)


def _rows(
    reader: RunReader, names: Sequence[str], chosen: Container[str] | None
) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Chunks of rows that are not empty; the first of ``names`` is the id."""
    for rows in reader.columns(names):
        kept = rows if chosen is None else [row for row in rows if row[0] in chosen]
        if kept:
            yield kept


class _Found:
    """Columns that appear while rows are read. Rows come in chunks: what is done once for each value of a hundred
    thousand rows takes a second."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[str, Numbers] = {}
        self._texts: dict[str, dict[int, str]] = {}
        self._paths: set[str] = set()

    def chunk(self, times: Sequence[str], facts: Sequence[str], attributes: Sequence[str]) -> None:
        """What each row has of them."""
        for prefix, documents in (("", times), ("facts", facts), ("attributes", attributes)):
            self._within(prefix, [_NOTHING if text == "{}" else _decoded(text) for text in documents], 0)
        self.count += len(times)

    def _within(self, prefix: str, values: Sequence[Any], depth: int) -> None:
        documents = [value if type(value) is dict else _NOTHING for value in values]
        for name in dict.fromkeys(chain.from_iterable(documents)):
            if not 0 < len(name) <= MAX_NAME or "." in name or (prefix == "attributes" and name in _REPEATED):
                continue
            path = f"{prefix}.{name}" if prefix else name
            if path in self._paths or len(self._paths) < MOST_PATHS:
                self._paths.add(path)
                self._take(path, [document.get(name) for document in documents], depth + 1)

    def _take(self, path: str, values: Sequence[Any], depth: int) -> None:
        kinds = set(map(type, values))
        if dict in kinds and depth < 4:
            self._within(path, values, depth)
        if kinds & _NUMERIC and self._has_room(path):
            column = self._numbers.setdefault(path, Numbers())
            if len(column.values) <= self.count:  # else two names of a row mean the same
                column.values.extend([MISSING] * (self.count - len(column.values)))
                column.extend([
                    value if type(value) in _NUMERIC and -1e300 < value < 1e300 else MISSING for value in values
                ])  # fmt: skip
        if str in kinds and self._has_room(path):
            texts = self._texts.setdefault(path, {})
            texts.update({self.count + at: value[:MAX_TEXT] for at, value in enumerate(values) if type(value) is str})

    def _has_room(self, path: str) -> bool:
        return path in self._numbers or path in self._texts or len(self._numbers.keys() | self._texts.keys()) < MOST

    def columns(self) -> tuple[dict[str, Numbers], dict[str, Words]]:
        """What there is, of all rows."""
        texts = {}
        for column in self._numbers.values():
            column.values.extend([MISSING] * (self.count - len(column.values)))
        for path, by_row in self._texts.items():
            if path not in self._numbers:  # of another kind here and there: as a number
                texts[path] = Words(MAX_TEXT)
                texts[path].extend([by_row.get(row) for row in range(self.count)])
        return self._numbers, texts


_NOTHING: dict[str, Any] = {}
_NUMERIC = frozenset((int, float, bool))
_REPEATED = frozenset((*_NUMBERS, *_TEXTS, *_MORE_NUMBERS, *_MORE_TEXTS, "session_id", "run_id"))
"""Attributes that are columns of their own."""


def _decoded(document: str) -> Any:
    try:
        return msgspec.json.decode(document)
    except msgspec.DecodeError:
        return None
