"""What a place of stored trajectories is, whatever their form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from autotrace.data.metrics import OfStep
from autotrace.insight.examine import examine
from autotrace.insight.profile import encode
from autotrace.insight.settings import Settings
from autotrace.query.errors import QueryError
from autotrace.ship.assembly.titles import entitle
from autotrace.ship.index.summary import summarise
from autotrace.ship.store.row import Row
from autotrace.trajectory.bounds import Allowance, flattened
from autotrace.trajectory.deferred import Deferred
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.numbers import integer

_ID = re.compile("[0-9a-f]{32}")


class Place(Protocol):
    """The trajectories of one run, in files. Raises ``QueryError`` for what cannot be read."""

    path: Path
    run_id: str

    def files(self) -> Sequence[Path]:
        """What they stand in now."""

    def rows(self) -> Iterator[Row]:
        """A line about each."""

    def step_facts(self) -> Mapping[int, OfStep]:
        """What the trainer logged about steps, where that is stored."""

    def load(self, row: Row) -> Trajectory | None:
        """The whole of one; None where it is gone."""


def row_of(trajectory: Trajectory) -> Row:
    """The line about a trajectory, examined now."""
    row = Row(trajectory.trace_id)
    summarise(row, trajectory)
    row.attempt = integer(trajectory.attributes.get("attempt")) or 1
    row.profile = encode(examine(trajectory, Settings()))
    return finished(row)


def finished(row: Row) -> Row:
    """``row``, as that of a trajectory that was delivered. Raises ``QueryError`` where its id is none."""
    if not _ID.fullmatch(row.trace_id):
        raise QueryError(f"{row.trace_id[:40]!r} is no id of a trajectory: it has to be 32 lower-case hex digits")
    row.group_key, row.complete = row.group, row.status != "OPEN"
    return row


def connected(spans: list[Span]) -> list[Span]:
    """``spans`` with what is not stored of them: titles, and whole prompts, which are made of what each adds."""
    flattened(spans)
    by_id, allowance = {span.span_id: span for span in spans}, Allowance()
    for span in spans:
        new = span.new_prompt_ids
        if new is not None and span.prompt_keep >= 0 and allowance.take(span.prompt_keep + len(new)):
            span.prompt_ids = Deferred(lambda span=span: _prompt(span, by_id))  # type: ignore[misc]
    entitle(spans)
    return spans


def _prompt(span: Span, by_id: dict[str, Span]) -> list[int] | None:
    """Turn by turn back to the first one, from each what is still missing."""
    pieces, missing, at, hops = [span.new_prompt_ids or []], span.prompt_keep, span, 0
    while missing > 0:
        base = by_id.get(at.prompt_base or "")
        if base is None or base.new_prompt_ids is None or hops > len(by_id):
            return None
        added = [*base.new_prompt_ids, *(base.response_ids or ())]
        if missing > base.prompt_keep + len(added):
            return None
        pieces.append(added[: max(0, missing - base.prompt_keep)])
        missing, at, hops = min(missing, base.prompt_keep), base, hops + 1
    return [id for piece in reversed(pieces) for id in piece]


def as_error(parts: Sequence[Any] | None) -> tuple[str, str, str] | None:
    """Type, message and stack of a call's error."""
    if not parts or not any(parts):
        return None
    kind, message, stack = (["" if part is None else str(part) for part in parts] + ["", "", ""])[:3]
    return kind, message, stack
