"""The trainer's value of each token, read from the segment where it lies and given to the calls whose tokens they
are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.reader import opened, records_at
from autotrace.spool.records import TokenFacts
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.pieces import Piece, own_pieces, whole_response

FIELDS = {
    "old_log_probs": "old_logprobs",
    "rollout_log_probs": "trained_logprobs",
    "entropy": "entropy",
    "ref_log_prob": "ref_logprobs",
    "rollout_is_weights": "is_weights",
    "advantages": "advantages",
    token_facts.MASK: "loss_mask",
}
"""Column -> field of ``Span``."""


def add_columns(trajectory: Trajectory, state: State, run_folder: str | Path) -> None:
    """Fill the fields of its spans; nothing where none were recorded, or where their segment was removed. Raises
    ``OSError`` while it cannot be read."""
    summary = trajectory.facts.get(token_facts.TOKEN_FACTS)
    if not isinstance(summary, dict) or not summary.get("columns"):
        return
    columns = _columns(trajectory.trace_id, state, run_folder)
    whole = whole_response(trajectory.spans)
    places = own_pieces(trajectory, whole)
    owners = {span.span_id: span for span in trajectory.spans}
    if places is None:
        if whole is None:
            return
        places = {whole.span_id: Piece(0, whole.response_tokens or 0)}
    for column, values in columns.items():
        for span_id, (start, count) in places.items():
            if part := values[start : start + count]:
                setattr(owners[span_id], FIELDS[column], part)


def _columns(trace_id: str, state: State, run_folder: str | Path) -> dict[str, list[Any]]:
    """Of its last output, which is the one that the agent's call shows; of several reports the latest counts."""
    row = state.db.execute(
        "SELECT segments.name AS segment, facts.offset FROM facts JOIN segments ON segments.id = facts.segment"
        " WHERE trace_id = ? AND facts.name = ? ORDER BY CAST(output AS INTEGER) DESC, at_ns DESC LIMIT 1",
        (trace_id, token_facts.TOKEN_FACTS),
    ).fetchone()
    if row is None:
        return {}
    with suppress(FileNotFoundError), opened(run_folder, row["segment"]) as fd:
        for located in records_at(fd, [row["offset"]]):
            if isinstance(located.record, TokenFacts):
                return token_facts.columns(located.record.value)
    return {}
