"""What a place of stored trajectories is, whatever their form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from autotrace.insight.examine import examine
from autotrace.insight.profile import encode
from autotrace.insight.settings import Settings
from autotrace.query.errors import QueryError
from autotrace.ship.assembly.titles import entitle
from autotrace.ship.index.summary import summarise
from autotrace.ship.store.row import Row
from autotrace.tables.metrics import OfStep
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
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.new_prompt_ids is not None:
            span.prompt_ids = Deferred(lambda span=span: _prompt(span, by_id))  # type: ignore[misc]
    entitle(spans)
    return spans


def _prompt(span: Span, by_id: dict[str, Span]) -> list[int] | None:
    """Turn by turn from the first one on: a chain of a thousand turns would be too deep to recurse."""
    chain: list[Span] = []
    above: Span | None = span
    while above is not None and len(chain) <= len(by_id):
        chain.append(above)
        above = by_id.get(above.prompt_base or "")
    prompt: list[int] = []
    before: list[int] = []
    for each in reversed(chain):
        if each.new_prompt_ids is None or each.prompt_keep > len(before):
            return None
        prompt = [*before[: each.prompt_keep], *each.new_prompt_ids]
        before = [*prompt, *(each.response_ids or ())]
    return prompt


def as_error(parts: Sequence[Any] | None) -> tuple[str, str, str] | None:
    """Type, message and stack of a call's error."""
    if not parts or not any(parts):
        return None
    kind, message, stack = (["" if part is None else str(part) for part in parts] + ["", "", ""])[:3]
    return kind, message, stack
