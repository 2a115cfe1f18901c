"""The line about a complete trace, as findings read it, and by which digests late facts may name it.

The indexer makes a summary of the assembled trajectory, and stores it."""

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


COLUMNS = (
    *identity({}), "name", "role", "status", "start_ns", "end_ns", "spans", "turns", "tool_calls", "prompt_tokens",
    "response_tokens", "reward", "error", "facts", "attributes", "times", "profile",
)  # fmt: skip
"""Columns that the assembled trajectory fills."""


class Summary(msgspec.Struct):
    """What the index keeps of one trajectory."""

    columns: dict[str, Any]
    """By the names in ``COLUMNS``."""
    digests: list[str]
    """Of its responses: the agent's output and the response of each call."""

    @classmethod
    def of(cls, look: Look, settings: Settings) -> Summary:
        """Of an assembled trajectory; ``settings``: of its run."""
        row = Row(look.trajectory.trace_id)
        summarise(row, look.trajectory)
        row.profile = encode(_profile(look, settings))
        return cls({column: getattr(row, column) for column in COLUMNS}, look.digests)

    def fill(self, row: Row) -> None:
        """Fill ``row``; ``attempt``, ``version``, what was decided, and what its group and its step showed of it stay:
        they are looked at again, and until then this is known."""
        before = decode(row.profile)
        for column, value in self.columns.items():
            setattr(row, column, value)
        if before is not None and before.found and (profile := decode(row.profile)) is not None:
            row.profile = encode(msgspec.structs.replace(profile, found=before.found))


def _profile(look: Look, settings: Settings) -> Profile:
    """As it is known, if nothing of what it was made of has changed: late facts bring most trajectories back once."""
    trajectory, basis = look.trajectory, _basis(look)
    known = decode(trajectory.profile)
    if known is not None and basis and (known.basis, known.stamp) == (basis, registry.stamp()):
        return msgspec.structs.replace(known, found=[])
    return msgspec.structs.replace(examine(trajectory, settings), basis=basis)


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
