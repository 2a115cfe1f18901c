"""Read an engine's figures of a trajectory's calls (why each call ended), and split a trajectory's duration: waiting
for the engine, prefill, decode, tools, reward, and the rest.

The engine's part comes from the attributes of its requests (``docs/engines.md``), everything else from the spans' own
times. Overlapping calls count once where spans are measured; overlapping requests are summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from autotrace.trajectory.jsonable import finite, known, text
from autotrace.trajectory.model import Span, Trajectory, above, ancestors

_TOOLS = frozenset({"tool", "env"})
_FIGURES = frozenset({"decode_s", "ttft_s"})
"""Attributes that show that an engine reported figures for a request."""
_TIMED = frozenset({"llm", "tool", "env", "reward"})
"""Roles whose calls have a time of their own, including all nested calls."""


@dataclass(frozen=True)
class Times:
    """Hold durations in seconds. None: not measured."""

    queue_s: float | None = None
    """Time of requests before the first prefill: dispatched (a paused engine, a weight update), queued, preempted."""
    prefill_s: float | None = None
    decode_s: float | None = None
    """Time between first and last token, without the time of preemption."""
    way_s: float | None = None
    """Remaining time of LLM calls: router, Ray, HTTP."""
    llm_s: float | None = None
    """Time of LLM calls without figures from an engine."""
    tool_s: float | None = None
    reward_s: float | None = None
    other_s: float | None = None
    """Time outside all these calls: the agent's own work, templates, parsers, waiting."""

    def measured(self) -> dict[str, float]:
        """Return the times that are not None, by name."""
        return {name: value for name in PARTS if (value := getattr(self, name)) is not None}


PARTS = tuple(field.name for field in fields(Times))
"""Names of the durations: ``queue_s``, ``prefill_s``, ..."""


def times(trajectory: Trajectory) -> Times:
    """Compute the times of a complete trajectory (open spans are skipped)."""
    spans = [span for span in trajectory.spans if span.end_ns is not None]
    by_id = {span.span_id: span for span in spans}
    by_role: dict[str, list[Span]] = {}
    for span in spans:
        by_role.setdefault(span.role, []).append(span)
    calls = [span for span in by_role.get("llm", ()) if not within(span, by_id)]
    tools = [span for role in _TOOLS for span in by_role.get(role, ())]
    rewards = by_role.get("reward", [])
    having = [span for span in spans if not _FIGURES.isdisjoint(span.attributes)]
    phases = _phases(having, by_id)
    traced = {id for span in having for id in (span.span_id, *(outer.span_id for outer in ancestors(span, by_id)))}
    served, asked = ([span for span in calls if (span.span_id in traced) is known] for known in (True, False))
    engine = sum(value for value in phases.values() if value is not None)
    root = trajectory.root.duration_ns
    if not calls and any(span.role == "llm" for span in trajectory.spans):
        root = None  # without the agent's own calls the rest is unknown
    return Times(
        queue_s=phases["queue"],
        prefill_s=phases["prefill"],
        decode_s=phases["decode"],
        way_s=_rounded(max(0.0, sum(_seconds(span) for span in served) - engine)) if served else None,
        llm_s=_rounded(sum(_seconds(span) for span in asked)) if asked else None,
        tool_s=_rounded(_covered(tools)) if tools else None,
        reward_s=_rounded(_covered(rewards)) if rewards else None,
        other_s=None if root is None else _rounded(max(0.0, root / 1e9 - _covered([*calls, *tools, *rewards]))),
    )


def finish_reason(attributes: Mapping[str, Any]) -> str | None:
    """Return why a response ended, from the ``figures`` of its call. An engine gives the reason as ``finish_reason``;
    the engine's ``stop_reason`` may be the token or text at which generation stopped."""
    for name in ("finish_reason", "stop_reason"):
        value = attributes.get(name)
        if value is not None and value != "" and not isinstance(value, (dict, list)):
            return text(str(value))
    return None


ABORTED = frozenset({"abort", "aborted", "cancel", "canceled", "cancelled"})
"""Finish reasons of a response that was ended from outside."""


def reported(trajectory: Trajectory) -> Mapping[str, Mapping[str, Any]]:
    """Return id -> ``figures`` of each LLM call below which an engine reported; built once: ``spans`` do not change."""
    made: dict[str, dict[str, Any]] | None = vars(trajectory).get("_reported")
    if made is None:
        made = {}
        for span in trajectory.spans:
            if span.role == "engine" and (call := above(span, trajectory.by_id, ("llm",))) is not None:
                replica = span.attributes.get("replica")
                server = f"{span.host}/{span.pid}" if replica is None else str(replica)
                made.setdefault(call.span_id, {}).update({**known(span.attributes), "server": server})
        made = {id: {**attributes, **known(trajectory.by_id[id].attributes)} for id, attributes in made.items()}
        trajectory.__dict__["_reported"] = made
    return made


def figures(trajectory: Trajectory, span: Span) -> Mapping[str, Any]:
    """Return the attributes of a call; for an LLM call merged with the figures of the innermost engine below.
    ``server`` names the engine."""
    return reported(trajectory).get(span.span_id, span.attributes)


def ending(trajectory: Trajectory, span: Span) -> str | None:
    """Return why the response of a call ended, from the engine, else from the call: ``stop``, ``length``, ..."""
    return finish_reason(figures(trajectory, span))


PHASES = ("dispatch", "queue", "prefill", "decode")


def engine_phases(span: Span) -> Iterator[tuple[str, float, float]]:
    """Yield the engine's own phases of a request in sequence from the start of the request: name (in ``PHASES``), start
    and length in ns."""
    at = float(span.start_ns)
    for name in PHASES:
        seconds = finite(span.attributes.get(f"{name}_s")) or 0.0
        if seconds > 0:
            yield name, at, seconds * 1e9
            at += seconds * 1e9


@dataclass(frozen=True)
class Gap:
    """Describe the longest interval without an open LLM call, tool or reward."""

    seconds: float
    where: str
    """``before turn 2``, ``before the tool search``, ``after turn 5``."""


def longest_gap(trajectory: Trajectory) -> Gap | None:
    """Return the longest interval of own work or waiting in an ended trajectory; None without any such call."""
    end, turns = trajectory.root.end_ns, {span.span_id: turn for turn, span in enumerate(trajectory.llm_spans, 1)}
    timed = [span for span in trajectory.spans if span.role in _TIMED and span is not trajectory.root]
    if end is None or not timed:
        return None

    def named(span: Span) -> str:
        turn = turns.get(span.span_id)
        role = {"llm": "call", "env": "environment"}.get(span.role, span.role)
        return f"turn {turn}" if turn is not None else f"the {role} {span.shown_name}"

    until, last, longest = trajectory.root.start_ns, "", Gap(0.0, "")
    for span in sorted(timed, key=lambda span: span.start_ns):
        if span.start_ns - until > longest.seconds * 1e9:
            longest = Gap((span.start_ns - until) / 1e9, f"before {named(span)}")
        if (ended := end if span.end_ns is None else span.end_ns) > until:
            until, last = ended, named(span)
    if end - until > longest.seconds * 1e9:
        longest = Gap((end - until) / 1e9, f"after {last}")
    return longest if longest.where else None


def _phases(having: Sequence[Span], by_id: Mapping[str, Span]) -> dict[str, float | None]:
    """Sum the phases over the requests with figures; among nested requests the innermost counts."""
    outer = {outer.span_id for span in having for outer in ancestors(span, by_id)}
    sums: dict[str, float | None] = {"queue": None, "prefill": None, "decode": None}

    def add(phase: str, *values: object) -> None:
        numbers = [known for value in values if (known := finite(value)) is not None]
        if numbers:
            sums[phase] = _rounded((sums[phase] or 0.0) + sum(numbers))

    for span in having:
        if span.span_id in outer:
            continue
        reported = span.attributes
        preempted, decode = finite(reported.get("preempted_s")) or 0.0, finite(reported.get("decode_s"))
        add("queue", reported.get("dispatch_s"), reported.get("queue_s"), preempted or None)
        add("prefill", reported.get("prefill_s"))
        if "prefill_s" not in reported:  # the engine does not separate queueing from prefill
            add("prefill", reported.get("ttft_s"))
        add("decode", None if decode is None else decode - preempted)
    return sums


def within(span: Span, by_id: Mapping[str, Span]) -> bool:
    """Return whether the span is part of another call that has a time of its own."""
    parent = by_id.get(span.parent_id) if span.parent_id else None
    if parent is None or parent.parent_id is None:  # nearly always
        return parent is not None and parent.role in _TIMED
    return above(span, by_id, _TIMED) is not None


def _covered(spans: Iterable[Span]) -> float:
    """Return the seconds in which at least one of ``spans`` was open."""
    total, until = 0, 0
    for start, end in sorted([(span.start_ns, span.end_ns or span.start_ns) for span in spans]):
        if end > until:
            begin = start if start > until else until
            if end > begin:
                total += end - begin
            until = end
    return total / 1e9


def _seconds(span: Span) -> float:
    return (span.duration_ns or 0) / 1e9


def _rounded(value: float) -> float:
    return round(value, 6)
