"""Build timelines of rollouts: the lanes of a step, and a file for ui.perfetto.dev."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from autotrace.tables.columns import ID
from autotrace.tables.conditions import condition
from autotrace.tables.hung import open_call
from autotrace.tables.reader import Reader
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.durations import engine_phases, times, within
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory, ancestors

MOST = 512
"""Maximum rollouts of a step that are read for the lanes."""
KINDS = ("queue", "prefill", "decode", "llm", "tool", "reward", "open", "other")
"""Activities of a rollout: waiting for an engine, ..., a model call without figures from an engine, ..., any other."""
_TIMED = {"llm": "llm", "tool": "tool", "env": "tool", "reward": "reward"}

Part = tuple[int, float, float]
"""Index in ``KINDS``, start, duration; seconds."""


def lanes(reader: Reader, step: int) -> dict[str, Any]:
    """Return the rollouts of a training step: see ``of_rollouts``. Above ``MOST``, the longest rollouts."""
    rows = reader.select(condition(f"step = {step} and not validate"), (*ID, "duration_s"))
    rows.sort(key=lambda row: -(row.duration_s or float("inf")))
    living = reader.run.living
    found = [rollout(one, living) for _, one in reader.each(rows[:MOST], texts=False) if one is not None]
    return of_rollouts(found, len(rows) - MOST)


def of_rollouts(rollouts: Iterable[dict[str, Any]], left_out: int = 0) -> dict[str, Any]:
    """Sort results of ``rollout`` by start, with times that count from the first start."""
    listed = sorted(rollouts, key=lambda one: one["start"])
    zero = listed[0]["start"] if listed else 0.0
    for one in listed:
        one["start"] = round(one["start"] - zero, 6)
    plain: dict[str, Any] = jsonable({"kinds": KINDS, "rollouts": listed, "left_out": max(0, left_out)})
    return plain


def rollout(one: Trajectory, living: bool = False) -> dict[str, Any]:
    """Describe a rollout. ``worker`` and ``replicas`` are processes; ``parts``: the activities; ``requests``: the
    engines' phases, each with its replica. Both count from the rollout's start. ``spent``: seconds by kind.
    ``living``: the run goes on, so an open call lasts until now."""
    root, inside = one.root, open_call(one) if living else None
    now = time.time_ns() if inside else 0
    parts: list[Part] = []
    requests: list[tuple[str, list[Part]]] = []
    for span in one.spans:
        phases = _phases(span, root)
        if phases and span.role == "engine":
            requests.append((f"{span.host}:{span.pid}", phases))
        kind = _TIMED.get(span.role)
        if kind is None or within(span, one.by_id):
            continue
        inner = phases or _engines(span, one) if kind == "llm" else []
        parts += inner or [_whole(span, root, kind, now)]
    spent = [sum(length for kind, _, length in parts if kind == number) for number in range(len(KINDS))]
    spent[-1] = times(one).other_s or 0.0
    return {
        "id": one.trace_id, "n": one.attributes.get("rollout_n"), "sample": one.attributes.get("sample_index"),
        "status": one.status, "worker": f"{root.host}:{root.pid}", "start": root.start_ns / 1e9,
        "duration": None if root.duration_ns is None else root.duration_ns / 1e9, "parts": parts, "requests": requests,
        "spent": [round(seconds, 6) for seconds in spent], "reward": one.facts.get("reward"),
        "open": inside and {"in": inside.name, "seconds": (now - root.start_ns) / 1e9},
    }  # fmt: skip


def _whole(span: Span, root: Span, kind: str, now: int) -> Part:
    if span.duration_ns is None:
        return _part("open", span.start_ns, max(0, now - span.start_ns), root)
    return _part(kind, span.start_ns, span.duration_ns, root)


def _part(kind: str, at_ns: float, took_ns: float, root: Span) -> Part:
    return KINDS.index(kind), round((at_ns - root.start_ns) / 1e9, 6), round(took_ns / 1e9, 6)


def _engines(span: Span, one: Trajectory) -> list[Part]:
    """Return the phases of the engine's requests below a call."""
    return [
        part
        for below in one.spans
        if below.role == "engine" and any(call is span for call in ancestors(below, one.by_id))
        for part in _phases(below, one.root)
    ]


def _phases(span: Span, root: Span) -> list[Part]:
    """Return the engine's own phases of a request."""
    return [_part("queue" if name == "dispatch" else name, at, took, root) for name, at, took in engine_phases(span)]


LANES = 200
"""Threads of a trajectory. Further calls are drawn over others in the last thread."""


def perfetto(trajectories: Iterable[Trajectory]) -> bytes:
    """Return the timelines of trajectories in the JSON of Chrome's trace events, which ui.perfetto.dev opens.

    A trajectory becomes a process, and each process that made calls becomes a thread. Perfetto draws the calls of a
    thread inside each other, so calls that overlap without nesting get a thread of their own.
    """
    events = [event for number, one in enumerate(trajectories, 1) for event in _events(number, one)]
    return msgspec.json.encode(jsonable({"traceEvents": events, "displayTimeUnit": "ms"}))


def _events(number: int, one: Trajectory) -> list[dict[str, Any]]:
    who = one.attributes
    name = f"step {who.get('step')} sample {who.get('sample_index')} n {who.get('rollout_n')} {one.trace_id[:12]}"
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}]
    lanes: list[tuple[str, list[int]]] = []
    tree, turns = tree_of(one), {span.span_id: turn for turn, span in enumerate(one.llm_spans, 1)}
    latest = max((span.end_ns or span.start_ns for span in one.spans), default=0)
    for span in sorted(one.spans, key=lambda span: (span.start_ns, -(span.end_ns or latest))):
        end = latest if span.end_ns is None else span.end_ns
        before = len(lanes)
        lane = _lane(lanes, f"{span.host}:{span.pid}", span.start_ns, end)
        if len(lanes) > before:
            named = {"ph": "M", "name": "thread_name", "pid": number, "tid": lane, "args": {"name": lanes[lane][0]}}
            events.append(named)
        place, turn = {"pid": number, "tid": lane}, turns.get(span.span_id)
        chain = {} if turn is None or len(tree.chains) < 2 else {"chain": tree.words(turn)}
        events.append({
            "ph": "X", "name": span.shown_name, "cat": span.role, "ts": span.start_ns / 1e3,
            "dur": (end - span.start_ns) / 1e3, "args": {**_arguments(span), **chain}, **place,
        })  # fmt: skip
        events += [
            {"ph": "X", "name": phase, "cat": "engine", "ts": at / 1e3, "dur": min(length, end - at) / 1e3, **place}
            for phase, at, length in (engine_phases(span) if span.role == "engine" else ())
            if at < end
        ]
    return events


def _lane(lanes: list[tuple[str, list[int]]], process: str, start: int, end: int) -> int:
    """Return the number of the first lane of ``process`` in which the call nests in the open calls, or follows them."""
    for number, (name, ends) in enumerate(lanes):
        if name != process:
            continue
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return number
    if len(lanes) >= LANES:
        return LANES - 1
    lanes.append((process, [end]))
    return len(lanes) - 1


def _arguments(span: Span) -> dict[str, Any]:
    said: dict[str, Any] = {"status": span.status, "name": span.name, "error": span.error_text}
    said |= {"prompt_tokens": span.prompt_tokens, "response_tokens": span.response_tokens}
    return {**{name: value for name, value in said.items() if value is not None}, **span.attributes}
