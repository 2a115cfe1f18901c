"""All trajectories of a run as columns: what the table, the scatter, the curves and ``--where`` of the page read.

In two parts, so that the page can be used before the second is there: what the table shows, and the rest, most of which
is JSON in the state (times, facts, attributes).
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

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
"""Columns made of names of the user's."""
MAX_TEXT = 500
"""Characters of one text."""
MAX_NAME = 200
"""Characters of a name of the user's; a longer one is no column."""


def main(reader: RunReader, chosen: Container[str] | None = None) -> bytes:
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
    return _packed(len(ids), numbers, texts, {"trace_id": array("B", bytes.fromhex("".join(ids)))})


def more(reader: RunReader, chosen: Container[str] | None = None) -> bytes:
    """The other columns, in the same order of rows: ``uid``, ``finding`` (codes with blanks between), ``queue_s``,
    ``facts.advantage``, ``attributes.agent_name``. At most ``MOST`` of the user's names."""
    found = _Found()
    own = {name: Numbers() for name in (*_MORE_NUMBERS, *_FLAGS)}
    words = {name: Words(MAX_TEXT) for name in (*_MORE_TEXTS, "finding")}
    flags = [f"({COLUMNS[name].sql}) AS {name}" for name in _FLAGS]
    names = ("trace_id", "times", "facts", "attributes", "profile", *_MORE_NUMBERS, *flags, *_MORE_TEXTS)
    for rows in _rows(reader, names, chosen):
        _, times, facts, attributes, profiles, *others = zip(*rows, strict=True)
        for row in zip(times, facts, attributes, strict=True):
            found.row(*row)
        words["finding"].extend([_finding(profile) for profile in profiles])
        for name, values in zip((*own, *_MORE_TEXTS), others, strict=True):
            (own[name] if name in own else words[name]).extend(values)
    numbers, texts = found.columns()
    return _packed(found.count, {**numbers, **own}, {**texts, **words}, {})


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
    """Columns that appear while rows are read."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[str, array[float]] = {}
        self._texts: dict[str, dict[int, str]] = {}

    def row(self, times: str, facts: str, attributes: str) -> None:
        for prefix, document in (("", times), ("facts", facts), ("attributes", attributes)):
            if document != "{}":
                self._take(prefix, _decoded(document))
        self.count += 1

    def _take(self, prefix: str, value: Any, depth: int = 0) -> None:
        if isinstance(value, dict) and depth < 4:
            for name, inner in value.items():
                if 0 < len(name) <= MAX_NAME and "." not in name and not (prefix == "attributes" and name in _REPEATED):
                    self._take(f"{prefix}.{name}" if prefix else name, inner, depth + 1)
        elif isinstance(value, (int, float)):
            column = self._numbers.get(prefix)
            if column is None:
                if len(self._numbers) + len(self._texts) >= MOST:
                    return
                column = self._numbers[prefix] = array("d")
            behind = self.count - len(column)  # -1: two names of this row mean the same
            if behind > 0:
                column.extend([MISSING] * behind)
            if behind >= 0:
                column.append(value if -1e300 < value < 1e300 else MISSING)
        elif isinstance(value, str):
            if prefix not in self._texts and len(self._numbers) + len(self._texts) >= MOST:
                return
            self._texts.setdefault(prefix, {})[self.count] = value[:MAX_TEXT]

    def columns(self) -> tuple[dict[str, Numbers], dict[str, Words]]:
        numbers, texts = {}, {}
        for name, values in self._numbers.items():
            values.extend([MISSING] * (self.count - len(values)))
            numbers[name] = Numbers()
            numbers[name].values = values
        for name, by_row in self._texts.items():
            if name not in numbers:  # of another kind here and there: as a number
                texts[name] = Words(MAX_TEXT)
                texts[name].extend([by_row.get(row) for row in range(self.count)])
        return numbers, texts


_REPEATED = frozenset((*_NUMBERS, *_TEXTS, *_MORE_NUMBERS, *_MORE_TEXTS, "session_id", "run_id"))
"""Attributes that are columns of their own."""


def _decoded(document: str) -> Any:
    try:
        return msgspec.json.decode(document)
    except msgspec.DecodeError:
        return None
