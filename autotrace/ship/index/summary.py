"""The line about a complete trace, and by which digests late facts may name it."""

from __future__ import annotations

from typing import Any

import msgspec

from autotrace.ship.assembly.tokens import digest_of
from autotrace.ship.store.row import Row, identity, number
from autotrace.trajectory.durations import times
from autotrace.trajectory.model import Trajectory


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
    failed = [span for span in trajectory.spans if span.error is not None]
    row.error = f"{failed[0].error[0]}: {failed[0].error[1]}"[:500] if failed and failed[0].error else None
    row.facts = msgspec.json.encode(trajectory.facts).decode()
    row.attributes = msgspec.json.encode(trajectory.attributes).decode()
    row.times = msgspec.json.encode(times(trajectory).measured()).decode()


def digests(trajectory: Trajectory) -> list[str]:
    """Digests of the trajectory's responses: the agent's output and the response of each call."""
    return sorted({digest_of(span.response_ids) for span in trajectory.spans if span.response_ids})
