"""Full-text search: the first hit of each trajectory is sent when it is found. What is found is what ``autotrace grep``
finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from autotrace.tables.reader import Reader
from autotrace.tables.search import ROLES, candidates, search
from autotrace.trajectory.jsonable import jsonable
from autotrace.view.open_runs import OpenRun

AT_ONCE = 20
"""Trajectories between two words about how far the search is; the run can be asked other things in between."""


def hits(run: OpenRun, words: str) -> Iterator[bytes]:
    """Lines of JSON: ``{trace_id, role, turn, before, hit, after}`` for the first place in each trajectory, and
    ``{done, of}``. ``words`` are found in any case."""
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    rows = run.read(lambda reader: candidates(reader, reader.select(columns=("trace_id",)), pattern))
    for start in range(0, len(rows), AT_ONCE):
        chosen = rows[start : start + AT_ONCE]
        yield from map(_line, run.read(lambda reader, chosen=chosen: list(_found(reader, chosen, pattern))))  # type: ignore[misc]
        yield _line({"done": start + len(chosen), "of": len(rows)})
    if not rows:
        yield _line({"done": 0, "of": 0})


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(jsonable(value)) + b"\n"


def _found(reader: Reader, rows: list[Any], pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    for row, one in reader.each(rows):
        match = None if one is None else next(search(one, pattern, frozenset(ROLES)), None)
        if match is not None:
            yield {
                "trace_id": row.trace_id, "role": match.role, "turn": match.turn, "before": match.before,
                "hit": match.text, "after": match.after,
            }  # fmt: skip
