"""Trajectories and lines as detectors read them, made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.examine import examine
from autotrace.insight.finding import Finding
from autotrace.insight.profile import Mark, Profile, ToolUse, TurnProfile
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import History, Record, Step
from autotrace.trajectory.model import OK, Span, Trajectory

SECOND = 1_000_000_000


def diagnose(steps: Iterable[Step]) -> list[Finding]:
    """The findings of ``steps``, which come in order."""
    diagnosis = Diagnosis()
    for step in steps:
        diagnosis.add(step)
    return diagnosis.findings()


_ids = itertools.count(1)


def span(role: str, parent: str | None, at: int = 0, **given: Any) -> Span:
    """A closed call of one second, ``at`` seconds after the start."""
    given = {"status": OK, "start_ns": at * SECOND, "end_ns": (at + 1) * SECOND, "name": f"{role}.call", **given}
    return Span(span_id=f"{next(_ids):016x}", parent_id=parent, role=role, key=f"key.{role}", **given)


def llm(
    parent: str, at: int, prompt: Sequence[int], response: Sequence[int], base: Span | None = None, **given: Any
) -> Span:
    """A turn; ``base``: the turn whose prompt and answer it begins with."""
    made = span("llm", parent, at, **given)
    made.prompt_ids = list(prompt)
    made.new_prompt_ids, made.prompt_tokens = list(prompt), len(prompt)
    made.response_ids, made.response_tokens = list(response), len(response)
    if base is not None:
        made.prompt_base = base.span_id
        made.prompt_keep = (base.prompt_tokens or 0) + (base.response_tokens or 0)
    return made


def trajectory(*spans: Span, root: Span | None = None, **facts: Any) -> Trajectory:
    """With ``root`` (one is made) above."""
    return Trajectory("t" * 32, "run", [root or span("trajectory", None), *spans], {"step": 1, "uid": "u"}, facts)


def marks(one: Trajectory, settings: TrainerSettings | None = None) -> list[tuple[str, int | None, int | None]]:
    """What it shows: code, turn, token."""
    return [(mark.code, mark.turn, mark.token) for mark in examine(one, settings or TrainerSettings()).marks]


def record(number: int = 0, group: str = "1/u", **given: Any) -> Record:
    """A line; fields of ``Profile`` that are given are of its profile."""
    fields = {name: given.pop(name) for name in Profile.__struct_fields__ if name in given}
    profile = Profile("1", **{"turns": [TurnProfile(4, 10, "stop", 2)], **fields})
    given = {"step": 1, "status": OK, "uid": group.rpartition("/")[2], "start_ns": 0, "end_ns": SECOND, "reward": 0.5,
             **given}  # fmt: skip
    return Record(f"{number:032x}", group, profile=profile, **given)


def step(records: Sequence[Record], number: int | None = 1, **settings: Any) -> Step:
    """A step."""
    return Step(number, list(records), TrainerSettings(**settings))


__all__ = [
    "History",
    "Mark",
    "ToolUse",
    "TrainerSettings",
    "TurnProfile",
    "llm",
    "marks",
    "record",
    "span",
    "step",
    "trajectory",
]
