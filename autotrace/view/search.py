"""Full-text search: every trajectory's texts are read, one after the other, and each hit is sent when it is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from autotrace.ship.run_reader import Gone, RunReader
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.view.detail import conversation
from autotrace.view.open_runs import OpenRun

AROUND = 60
"""Characters shown on each side of a hit."""
AT_ONCE = 20
"""Trajectories between two words about how far the search is; the run can be asked other things in between."""


def hits(run: OpenRun, words: str, step: str | None = None) -> Iterator[bytes]:
    """Lines of JSON: ``{trace_id, role, turn, before, hit, after}`` for the first place in each trajectory, and
    ``{done, of}``. ``words`` are found in any case."""
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    number = int(step) if step is not None and step.lstrip("-").isdigit() else None
    rows = run.read(lambda reader: reader.rows(step=number) if number is not None else reader.select())
    ids = [row.trace_id for row in rows if row.role in ("", "trajectory")] or [row.trace_id for row in rows]
    for start in range(0, len(ids), AT_ONCE):
        chosen = ids[start : start + AT_ONCE]
        yield from map(_line, run.read(lambda reader, chosen=chosen: _found(reader, chosen, pattern)))  # type: ignore[misc]
        yield _line({"done": start + len(chosen), "of": len(ids)})
    if not ids:
        yield _line({"done": 0, "of": 0})


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(jsonable(value)) + b"\n"


def _found(reader: RunReader, ids: list[str], pattern: re.Pattern[str]) -> list[dict[str, Any]]:
    found = []
    for id in ids:
        try:
            trajectory = reader.load(id)
        except (Gone, KeyError):
            continue
        hit = _first(trajectory, pattern)
        if hit is not None:
            found.append({"trace_id": id, **hit})
    return found


def _first(trajectory: Trajectory, pattern: re.Pattern[str]) -> dict[str, Any] | None:
    for item in conversation(trajectory):
        for text in (item["text"], item.get("thought"), item.get("arguments"), item.get("error")):
            match = pattern.search(text) if text else None
            if text and match:
                begin, end = match.span()
                return {
                    "role": item["role"], "turn": item["turn"], "before": text[max(0, begin - AROUND) : begin],
                    "hit": match[0], "after": text[end : end + AROUND],
                }  # fmt: skip
    return None
