"""What the page shows of training steps beside their curves: findings, and when each rollout of a step did what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from autotrace.insight import registry, words
from autotrace.insight.diagnose import Diagnosis, counts
from autotrace.insight.finding import Finding
from autotrace.insight.step_lines import line as step_line
from autotrace.tables import steps as query
from autotrace.tables.conditions import condition
from autotrace.tables.reader import Reader
from autotrace.trajectory.durations import engine_phases, times, within
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory, ancestors

MOST = 512
"""Rollouts of a step that are read for its lanes."""
KINDS = ("queue", "prefill", "decode", "llm", "tool", "reward", "open", "other")
"""What a rollout can be at: waiting for an engine, ..., a call of a model without anything from an engine, ...,
none of them."""
_TIMED = {"llm": "llm", "tool": "tool", "env": "tool", "reward": "reward"}

Part = tuple[int, float, float]
"""Which of ``KINDS``, start, duration; seconds."""


def findings(reader: Reader, rows: Sequence[Any] | None = None) -> dict[str, Any]:
    """What ``autotrace diagnose`` finds in the run, or in the steps of ``rows`` (lines of trajectories; then only
    these are named as places). ``found``: the findings, most costly first; ``steps``: step -> code -> how
    many trajectories; ``titles``: what the codes mean; ``rewards``: mean reward and parts of the training of each
    step; ``trajectories``: how many were looked at."""
    numbers = None if rows is None else {row.step for row in rows}
    named = None if rows is None else {row.trace_id for row in rows}
    diagnosis, shown, steps, rewards = Diagnosis(), Diagnosis(), {}, []
    for step in query.steps(reader, texts=True):
        concerned = counts(diagnosis.add(step))
        if numbers is not None and step.number not in numbers:
            continue
        shown.put(diagnosis.of_step(step.number))
        if step.number is None:
            continue
        if concerned:
            steps[str(step.number)] = concerned
        if step.training:
            of_step = step_line(step, step.training, validate=False)
            rewards.append({"step": step.number, "reward": of_step.reward_mean, "parts": of_step.reward_parts})
    used = {code for of_step in steps.values() for code in of_step}
    titles = {name: code.title for name, code in registry.codes().items() if name in used}
    found = [_finding(finding, named) for finding in shown.findings()]
    plain: dict[str, Any] = jsonable(
        {"found": found, "steps": steps, "titles": titles, "rewards": rewards, "trajectories": shown.trajectories}
    )
    return plain


def _finding(finding: Finding, named: Collection[str] | None) -> dict[str, Any]:
    """A finding in the words of ``autotrace diagnose``."""
    places = [place for place in finding.places if named is None or place.trace_id in named]
    return {
        "code": finding.code, "title": finding.title, "share": finding.share, "unit": finding.unit,
        "since": finding.since_step, "amount": words.amount(finding),
        "lines": [line for line in words.lines(finding) if line[0] != "much"],
        "places": [
            {"trace": place.trace_id, "turn": place.turn, "token": place.token, "where": words.where(place),
             "note": place.note}
            for place in places
        ],
    }  # fmt: skip


def lanes(reader: Reader, step: int) -> dict[str, Any]:
    """The rollouts of a training step: see ``of_rollouts``. If more than ``MOST``, the longest of them."""
    training = condition(f"step = {step} and not validate")
    rows = reader.select(training, ("trace_id", "duration_s"))
    rows.sort(key=lambda row: -(row.duration_s or float("inf")))
    found = [rollout(one) for _, one in reader.each(rows[:MOST], texts=False) if one is not None]
    return of_rollouts(found, len(rows) - MOST)


def of_rollouts(rollouts: Iterable[dict[str, Any]], left_out: int = 0) -> dict[str, Any]:
    """What ``rollout`` made, by start, with times that count from the first one's."""
    listed = sorted(rollouts, key=lambda one: one["start"])
    zero = listed[0]["start"] if listed else 0.0
    for one in listed:
        one["start"] = round(one["start"] - zero, 6)
    plain: dict[str, Any] = jsonable({"kinds": KINDS, "rollouts": listed, "left_out": max(0, left_out)})
    return plain


def rollout(one: Trajectory) -> dict[str, Any]:
    """``worker`` and ``replicas`` are processes; ``parts`` what it was at, and ``requests`` what engines did for it,
    each with its replica. Times of these count from the rollout's start. ``spent``: seconds by kind."""
    root = one.root
    by_id = {span.span_id: span for span in one.spans}
    parts: list[Part] = []
    requests: list[tuple[str, list[Part]]] = []
    for span in one.spans:
        phases = _phases(span, root)
        if phases and span.role == "engine":
            requests.append((f"{span.host}:{span.pid}", phases))
        kind = _TIMED.get(span.role)
        if kind is None or within(span, by_id):
            continue
        if kind == "llm":
            parts += phases or _engines(span, one.spans, by_id, root) or [_whole(span, root, kind)]
        else:
            parts.append(_whole(span, root, kind))
    spent = [sum(length for kind, _, length in parts if kind == number) for number in range(len(KINDS))]
    spent[-1] = times(one).other_s or 0.0
    return {
        "id": one.trace_id, "n": one.attributes.get("rollout_n"), "sample": one.attributes.get("sample_index"),
        "status": one.status, "worker": f"{root.host}:{root.pid}", "start": root.start_ns / 1e9,
        "duration": None if root.duration_ns is None else root.duration_ns / 1e9, "parts": parts, "requests": requests,
        "spent": [round(seconds, 6) for seconds in spent], "reward": one.facts.get("reward"),
    }  # fmt: skip


def _whole(span: Span, root: Span, kind: str) -> Part:
    begin = (span.start_ns - root.start_ns) / 1e9
    if span.duration_ns is None:
        return KINDS.index("open"), round(begin, 6), 0.0
    return KINDS.index(kind), round(begin, 6), round(span.duration_ns / 1e9, 6)


def _engines(span: Span, spans: Sequence[Span], by_id: dict[str, Span], root: Span) -> list[Part]:
    """The phases of the engine's requests below a call."""
    return [
        part
        for below in spans
        if below.role == "engine" and any(call is span for call in ancestors(below, by_id))
        for part in _phases(below, root)
    ]


def _phases(span: Span, root: Span) -> list[Part]:
    """The engine's own times."""
    return [
        (
            KINDS.index("queue" if name == "dispatch" else name),
            round((at - root.start_ns) / 1e9, 6),
            round(took / 1e9, 6),
        )
        for name, at, took in engine_phases(span)
    ]
