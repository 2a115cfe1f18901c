"""The line about a complete trace, and by which digests late facts may name it."""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.ship.assembly.tokens import digest_of
from autotrace.ship.store.row import Row, identity, number
from autotrace.trajectory.durations import times
from autotrace.trajectory.model import Span, Trajectory


def begin(row: Row, name: str, role: str, start_ns: int, attributes: dict[str, Any]) -> None:
    """Fill ``row`` from the root's beginning."""
    row.name, row.role, row.start_ns = name, role, start_ns
    for column, value in identity(attributes).items():
        setattr(row, column, value)
    row.attributes = msgspec.json.encode(attributes).decode()
    row.group_key = row.group


def summarise(row: Row, trajectory: Trajectory) -> None:
    """Fill ``row`` from the assembled trajectory; ``attempt`` and ``version`` stay."""
    root, calls = trajectory.root, trajectory.llm_spans
    for column, value in identity(trajectory.attributes).items():
        setattr(row, column, value)
    row.name, row.role, row.status = root.name, root.role, root.status
    row.start_ns, row.end_ns = root.start_ns, root.end_ns
    row.spans, row.turns = len(trajectory.spans), len(calls)
    tools = {span.span_id for span in trajectory.spans if span.role == "tool"}
    # A tool's own method below the agent's call of it is the same call.
    row.tool_calls = sum(span.span_id in tools and span.parent_id not in tools for span in trajectory.spans)
    row.prompt_tokens = next((span.prompt_tokens for span in calls if span.prompt_tokens is not None), None)
    responses = [span.response_tokens for span in calls if span.response_tokens is not None]
    row.response_tokens = sum(responses) if responses else None
    row.reward = number(trajectory.facts.get("reward"))
    errors = [span.error_text for span in trajectory.spans if span.error_text and not _dropped(span, root)]
    row.error = errors[0][:500] if errors else None
    row.facts = msgspec.json.encode(trajectory.facts).decode()
    row.attributes = msgspec.json.encode(trajectory.attributes).decode()
    row.times = msgspec.json.encode(times(trajectory).measured()).decode()


def _dropped(span: Span, root: Span) -> bool:
    """Cancelled, and that is no error: its caller went on without it (an early ``break`` out of a stream), or it was
    cancelled without a reason, which the status says already."""
    return span.status == "CANCELLED" and (root.status == "OK" or not (span.error and span.error[1]))


def digests(trajectory: Trajectory) -> list[str]:
    """Digests of the trajectory's responses: the agent's output and the response of each call."""
    return sorted({digest_of(span.response_ids) for span in trajectory.spans if span.response_ids})
