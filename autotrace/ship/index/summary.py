"""The line about a complete trace, as findings read it: the indexer fills it from the assembled trajectory."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from autotrace.insight import registry
from autotrace.insight.evidence import judged
from autotrace.insight.examine import examine
from autotrace.insight.profile import Profile, decode, encode
from autotrace.insight.records import Record
from autotrace.insight.settings import Settings
from autotrace.ship.assembly.loader import Look
from autotrace.ship.store.row import Row, identity
from autotrace.trajectory.durations import times
from autotrace.trajectory.jsonable import number
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.tool_calls import tool_calls


def record(row: Row, known: Profile) -> Record:
    """Of a line of the state."""
    facts: dict[str, Any] = msgspec.json.decode(row.facts)
    return Record(
        row.trace_id, row.group, row.step, row.status, known, bool(row.validate), row.uid, row.data_source, row.reward,
        facts, msgspec.json.decode(row.times), row.start_ns, row.end_ns, row.attempt, row.rollout_n, row.error,
    )  # fmt: skip


def fill(row: Row, look: Look, settings: Settings) -> None:
    """Fill the line about a trajectory from the trajectory; ``settings``: of its run. What its group and its step
    showed stays until they are looked at again. A trajectory is examined again only if something that it was made of
    has changed: late facts bring most of them back once."""
    summarise(row, look.trajectory)
    known, basis = decode(row.profile), _basis(look)
    if known is None or not basis or (known.basis, known.stamp) != (basis, registry.stamp()):
        found = [] if known is None else known.found
        row.profile = encode(msgspec.structs.replace(examine(look.trajectory, settings), basis=basis, found=found))


def _basis(look: Look) -> str:
    """Empty where the records may still make something else, or a detector of another package looks: it may read
    anything."""
    if look.records is None or registry.own():
        return ""
    trajectory = look.trajectory
    made_of = look.records, len(trajectory.spans), trajectory.settings, judged(trajectory.facts)
    return hashlib.blake2b(msgspec.json.encode(made_of), digest_size=8).hexdigest()


def begin(row: Row, name: str, role: str, start_ns: int, attributes: dict[str, Any]) -> None:
    """Fill ``row`` from the root's beginning."""
    row.name, row.role, row.start_ns = name, role, start_ns
    for column, value in identity(attributes).items():
        setattr(row, column, value)
    row.attributes = msgspec.json.encode(attributes).decode()
    row.group_key = row.group


def summarise(row: Row, trajectory: Trajectory) -> None:
    """Fill the line about a trajectory, but for its profile."""
    root, calls = trajectory.root, trajectory.llm_spans
    for column, value in identity(trajectory.attributes).items():
        setattr(row, column, value)
    row.name, row.role, row.status = root.name, root.role, root.status
    row.start_ns, row.end_ns = root.start_ns, root.end_ns
    row.spans, row.turns = len(trajectory.spans), len(calls)
    row.tool_calls = len(tool_calls(trajectory))
    row.prompt_tokens = next((span.prompt_tokens for span in calls if span.prompt_tokens is not None), None)
    responses = [span.response_tokens for span in calls if span.response_tokens is not None]
    row.response_tokens = sum(responses) if responses else None
    add_facts(row, trajectory.facts)
    errors = [span.error_text for span in trajectory.spans if span.error_text and not _dropped(span, root)]
    row.error = errors[0][:500] if errors else None
    row.attributes = msgspec.json.encode(trajectory.attributes).decode()
    row.times = msgspec.json.encode(times(trajectory).measured()).decode()


def add_facts(row: Row, facts: dict[str, Any]) -> None:
    """All that is known about the trajectory from elsewhere."""
    row.reward = number(facts.get("reward"))
    row.facts = msgspec.json.encode(facts).decode()


def _dropped(span: Span, root: Span) -> bool:
    """Cancelled, and that is no error: its caller went on without it (an early ``break`` out of a stream), or it was
    cancelled without a reason, which the status says already."""
    return span.status == "CANCELLED" and (root.status == "OK" or not (span.error and span.error[1]))
