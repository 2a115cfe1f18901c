"""Make the profile of a trajectory: run the detectors that need only the trajectory."""

from __future__ import annotations

import hashlib
import operator
from itertools import islice

from autotrace.insight import registry
from autotrace.insight.conduct import first_prompt, prompt_words
from autotrace.insight.evidence import Evidence, LLMCall, fingerprint, whole
from autotrace.insight.families.chains import death
from autotrace.insight.families.responses import rendered_anew
from autotrace.insight.profile import MAX_MARKS, MAX_NOTE, Mark, Profile, ToolUse, TurnProfile
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import grouped
from autotrace.insight.traits import traits_of
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.jsonable import number, text
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.token_ids import piece, unpacked
from autotrace.trajectory.tool_calls import ToolCall

HEAD = 4
"""Compare the beginnings of prompts by so many tokens."""


def examine(trajectory: Trajectory, settings: TrainerSettings) -> Profile:
    """Make the profile of a complete trajectory. Never raises, because recorded values may have any shape: a detector
    that raises is left out and logged once, and the other detectors' marks stay."""
    marks: list[Mark] = []
    try:
        evidence = Evidence(trajectory, settings)
        marks = _marks(evidence)
        return _profile(evidence, marks)
    except Exception as error:
        registry.failed("profile", error)
        return Profile(stamp=registry.stamp(), marks=marks)


def _profile(evidence: Evidence, marks: list[Mark]) -> Profile:
    first = evidence.turns[0].span.packed_prompt if evidence.turns else None
    said, asked = [call.ids for call in evidence.turns], first_prompt(evidence)
    prompt, numbers = next(iter(registry.tried(lambda: [prompt_words(evidence)])), ("", ""))
    return Profile(
        stamp=registry.stamp(),
        turns=[_turn(evidence, call) for call in evidence.turns],
        tools=_tools(evidence.tools),
        marks=marks,
        head=unpacked(piece(first, 0, HEAD)) if first else [],
        answers=fingerprint(ids for ids in said if ids is not None) if None not in said else "",
        returned=evidence.agent.response_tokens if evidence.agent is not None else None,
        chains=chains if len(chains := tree_of(evidence.trajectory).chains) > 1 else [],
        asked=hashlib.blake2b(first or repr(asked).encode(), digest_size=8).hexdigest() if first or asked else "",
        judged=bool(evidence.judged),
        traits=traits_of(evidence, registry.failed),
        prompt=prompt,
        numbers=numbers,
        died=None if (found := death(evidence)) is None else _bounded(found),
    )


def _turn(evidence: Evidence, call: LLMCall) -> TurnProfile:
    span, figures = call.span, call.figures
    duration = span.duration_ns
    preempted = figures.get("preemptions", figures.get("num_preempted"))
    return TurnProfile(
        span.prompt_tokens, span.response_tokens, call.finish, call.last,
        shared=span.prompt_keep if span.prompt_base is not None else 0,
        cached=whole(figures.get("cached_tokens")), weights=whole(figures.get("weight_version")),
        seconds=None if duration is None else round(duration / 1e9, 6),
        preempted=whole(preempted) or 0, server=str(figures.get("server", ""))[:80],
    )  # fmt: skip


def _tools(calls: list[ToolCall]) -> list[ToolUse]:
    used = []
    for name, made in grouped(calls, lambda call: call.name).items():
        seconds = [number(call.span.duration_ns) or 0.0 for call in made]
        failed = sum(call.failed is not None for call in made)
        used.append(ToolUse(name, len(made), failed, round(sum(seconds) / 1e9, 6), round(max(seconds) / 1e9, 6)))
    return used


def _marks(evidence: Evidence) -> list[Mark]:
    marks: list[Mark] = []
    for detector in registry.OF_TRAJECTORY:
        marks += registry.tried(detector, evidence)
    said_twice = registry.tried(rendered_anew, evidence, marks)
    marks = [mark for mark in marks if mark not in said_twice]
    for other in registry.own():
        if other.find is None:
            continue
        try:
            marks += map(_whole, islice(other.find(evidence.trajectory), MAX_MARKS))
        except Exception as error:  # another package's code
            registry.failed(other.name, error)
    return [_bounded(mark) for mark in marks[:MAX_MARKS]]


def _whole(mark: Mark) -> Mark:
    """Convert a mark of another package to a mark whose values can be stored. Raises ``TypeError`` for anything
    else."""
    if not isinstance(mark, Mark) or not all(isinstance(word, str) for word in (mark.code, mark.note, mark.kind)):
        raise TypeError(f"it found {mark!r:.200}: neither a Mark nor one with texts as code, note and kind")
    turn, token = (None if place is None else operator.index(place) for place in (mark.turn, mark.token))  # numpy's
    return Mark(text(mark.code), turn, token, mark.note, mark.kind)


def _bounded(mark: Mark) -> Mark:
    note = text(mark.note)
    short = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
    return Mark(mark.code, mark.turn, mark.token, short, text(mark.kind)[:MAX_NOTE])
