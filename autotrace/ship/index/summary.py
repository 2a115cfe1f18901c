"""Fill the state's line about a complete trace, as findings read the line, from the assembled trajectory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from autotrace.insight.examine import examine
from autotrace.insight.profile import Profile, decode, encode
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Record
from autotrace.ship.assembly.loader import Look
from autotrace.ship.store.row import TraceRow
from autotrace.tables.columns import Column
from autotrace.tables.rollout import Rollout
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.durations import times
from autotrace.trajectory.jsonable import number
from autotrace.trajectory.model import Span, Trajectory


def record(row: TraceRow, known: Profile) -> Record:
    """Convert a line of the state to a record."""
    facts: dict[str, Any] = msgspec.json.decode(row.facts)
    return Record(
        row.trace_id, row.group, row.step, row.status, known, bool(row.validate), row.uid, row.data_source, row.reward,
        facts, msgspec.json.decode(row.times), row.start_ns, row.end_ns, row.attempt, row.rollout_n, row.error,
    )  # fmt: skip


def fill(row: TraceRow, look: Look, settings: TrainerSettings) -> None:
    """Fill the line about a trajectory from the trajectory; ``settings``: settings of the run. Findings of the group
    and the step stay until the next examination."""
    summarise(row, look.trajectory)
    known = decode(row.profile)
    found = [] if known is None else known.found
    row.profile = encode(msgspec.structs.replace(examine(look.trajectory, settings), found=found))


_OF_BEGIN = TRAJECTORIES.chosen(
    "name", "role", "start_ns", "step", "sample_index", "rollout_n", "validate", "uid", "data_source",
    "experiment_name", "project_name",
)  # fmt: skip
_OF_WHOLE = _OF_BEGIN + TRAJECTORIES.chosen(
    "status", "end_ns", "spans", "tool_calls", "prompt_tokens", "response_tokens", "error"
)
"""Columns of ``trajectories`` that a line has, too."""


def begin(row: TraceRow, name: str, role: str, start_ns: int, attributes: dict[str, Any]) -> None:
    """Fill ``row`` from the root's beginning."""
    root = Span("", None, name, role, "", start_ns, attributes=attributes)
    rollout = Rollout(Trajectory(row.trace_id, "", [root], attributes))
    _take(row, rollout, _OF_BEGIN)
    row.group_key = rollout.group_id


def summarise(row: TraceRow, trajectory: Trajectory) -> None:
    """Fill the line about a trajectory, except for the profile."""
    _take(row, Rollout(trajectory), _OF_WHOLE)
    row.turns, row.root_id = trajectory.turns, trajectory.root.span_id
    add_facts(row, trajectory.facts)
    row.times = msgspec.json.encode(times(trajectory).measured()).decode()


def _take(row: TraceRow, rollout: Rollout, columns: Iterable[Column]) -> None:
    for column in columns:
        setattr(row, column.name, column.of(rollout))
    session = rollout.attributes.get("session_id", rollout.attributes.get("rollout_n"))
    row.session = None if session is None else str(session)[:1000]
    row.attributes = msgspec.json.encode(rollout.attributes).decode()


def add_facts(row: TraceRow, facts: dict[str, Any]) -> None:
    """Set the facts that were reported about the trajectory."""
    row.reward = number(facts.get("reward"))
    row.facts = msgspec.json.encode(facts).decode()
