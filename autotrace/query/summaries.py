"""Columns that need no segment to be read: what the state has of each trajectory, as ``autotrace ls`` shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec

from autotrace.insight.profile import codes, decode
from autotrace.ship.store.row import Row
from autotrace.tables.columns import Column, Table
from autotrace.tables.rollout import ROLES, Known, json, word
from autotrace.tables.schema import FACTS
from autotrace.tables.trajectories import TRAJECTORIES
from autotrace.trajectory.numbers import integer, number


class Summary:
    """One trajectory, as far as the state has it."""

    def __init__(self, run_id: str, row: Row, settings: str) -> None:
        """``settings``: of its run, encoded."""
        self.run_id = run_id
        self.settings = None if settings == "{}" else settings
        self.row = row
        self.trace_id, self.step, self.uid = row.trace_id, row.step, row.uid
        self.version = max(1, row.version)
        self.rollout_n, self.validate = row.rollout_n, row.validate

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """Its facts."""
        facts: dict[str, Any] = msgspec.json.decode(self.row.facts)
        return facts

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Its attributes."""
        attributes: dict[str, Any] = msgspec.json.decode(self.row.attributes)
        return attributes

    @cached_property
    def times(self) -> Mapping[str, float]:
        """Where the time went."""
        times: dict[str, float] = msgspec.json.decode(self.row.times)
        return times


def _fact(name: str, convert: Callable[[Any], Any]) -> Callable[[Summary], Any]:
    return lambda summary: convert(summary.facts.get(name))


def _time(name: str) -> Callable[[Summary], Any]:
    return lambda summary: summary.times.get(name)


def _duration(summary: Summary) -> float | None:
    duration = summary.row.duration_ns
    return None if duration is None else duration / 1e9


_IDENTITY = ("run_id", "trace_id", "version", "step", "uid", "rollout_n", "validate")
_OF_ROW = (
    "project_name", "experiment_name", "sample_index", "data_source", "attempt", "name", "role", "status", "error",
    "tool_calls", "spans", "prompt_tokens", "response_tokens", "start_ns", "end_ns", "reward",
)  # fmt: skip
_TIMES = ("queue_s", "prefill_s", "decode_s", "way_s", "tool_s", "reward_s", "other_s", "llm_s")
_VALUES: dict[str, Callable[[Summary], Any]] = {
    **{name: attrgetter(name) for name in _IDENTITY},
    "late_spans": attrgetter("row.late_spans"),
    "is_trajectory": lambda summary: summary.row.role in ROLES,
    **{name: attrgetter(f"row.{name}") for name in _OF_ROW},
    **{name: _time(name) for name in _TIMES},
    "group_id": attrgetter("row.group"),
    "agent_name": lambda summary: word(summary.attributes.get("agent_name")),
    "reward_extra_info": _fact("reward_extra_info", json),
    "advantage": _fact("advantage", number),
    "mismatch_mean": _fact("mismatch_mean", number),
    "mismatch_max": _fact("mismatch_max", number),
    "entropy": _fact("entropy", number),
    "token_facts": _fact("token_facts", json),
    "trained_in_step": _fact("trained_in_step", integer),
    "trained_in_steps": _fact("trained_in_steps", json),
    "dropped": _fact("dropped", word),
    "num_turns": _fact("num_turns", integer),
    "llm_calls": attrgetter("row.turns"),
    "settings": attrgetter("settings"),
    "findings": lambda summary: codes(decode(summary.row.profile)),
    "profile": lambda summary: None if summary.row.profile == "{}" else summary.row.profile,
    "duration_s": _duration,
    "attributes": lambda summary: json(summary.attributes),
}


def columns(table: Table, names: Sequence[str]) -> list[Column] | None:
    """The columns ``names`` as they are made of ``Summary`` (of ``Known`` of a ``Summary``, for ``facts``); None where
    one of them needs the segments."""
    if table is FACTS:
        return [column for name in names if (column := table.column(name)) is not None]
    if table is not TRAJECTORIES or not _VALUES.keys() >= set(names):
        return None
    by_name = {column.name: column for column in table.columns}
    return [Column(name, by_name[name].type, by_name[name].meaning, _VALUES[name]) for name in names]


def rows(table: Table, summaries: Sequence[Summary]) -> list[Any]:
    """What the columns of ``columns`` are asked for each row."""
    if table is TRAJECTORIES:
        return [summary for summary in summaries if summary.row.role in ROLES]
    return [
        Known(summary, name, value)  # type: ignore[arg-type]  # all that is asked of it is its identity
        for summary in summaries
        for name, value in summary.facts.items()
    ]
