"""The timeline of trajectories in the JSON of Chrome's trace events, which ui.perfetto.dev opens.

A process there is a trajectory, a thread one of the processes that made its calls. Perfetto draws calls of one thread
inside of each other, so calls that overlap without that get a thread of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.durations import engine_phases
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Span, Trajectory

LANES = 200
"""Threads of one trajectory. Calls that would need more are drawn over others in the last one."""


def encoded(trajectories: Iterable[Trajectory]) -> bytes:
    """The file."""
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
    """The number of the first lane of ``process`` in which the call is inside of what is open there, or after it."""
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
