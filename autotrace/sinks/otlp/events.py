"""Events of a span: the exception that ended it, and on the root the results of evaluations and the findings.

Findings are events of the root whatever turn they are of, which they name: once they are known, the root alone is sent
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.sdk.trace import Event

from autotrace.insight.profile import Mark, marks
from autotrace.insight.registry import by_weight
from autotrace.sinks import payload
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import Span, Trajectory

FINDING = "autotrace.finding"


def events(trajectory: Trajectory, span: Span) -> list[Event]:
    """Events of ``span``, each at the time to which it belongs."""
    end = max(0, payload.end_of(trajectory, span))
    made: list[Event] = []
    if span.error is not None:
        names = ("exception.type", "exception.message", "exception.stacktrace")
        exception = {name: text(value) for name, value in zip(names, span.error, strict=True)}
        made.append(Event("exception", exception, timestamp=end))
    if span is trajectory.root:
        for name, value in scores(trajectory.facts).items():
            score: dict[str, Any] = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(value)}
            if isinstance(value, bool):
                score["gen_ai.evaluation.score.label"] = "pass" if value else "fail"
            made.append(Event("gen_ai.evaluation.result", score, timestamp=end))
        made += _findings(trajectory)
    return made


def scores(facts: Mapping[str, Any]) -> dict[str, float | bool]:
    """Facts that are results of an evaluation: ``reward`` and its parts, ``advantage``; numbers or truth values."""
    results: dict[str, float | bool] = {}
    for name, value in payload.jsonable(dict(facts)).items():
        if not name.startswith(("reward", "advantage", "score")):
            continue
        for part, number in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(number, (bool, int, float)):
                results[f"{name}.{part}" if part else name] = number
    return results


def _findings(trajectory: Trajectory) -> Iterator[Event]:
    """Each code once, the most costly first, at the end of the turn that it is of."""
    turns = trajectory.llm_spans
    for mark in by_weight(marks(trajectory.profile)):
        at = turns[mark.turn - 1] if mark.turn is not None and 0 < mark.turn <= len(turns) else None
        yield Event(FINDING, _attributes(mark, at), timestamp=max(0, payload.end_of(trajectory, at or trajectory.root)))


def _attributes(mark: Mark, at: Span | None) -> dict[str, Any]:
    attributes = {
        "code": text(mark.code),
        "turn": mark.turn,
        "token": mark.token,
        "span_id": None if at is None else at.span_id,
        "note": text(mark.note) or None,
    }
    return {f"{FINDING}.{name}": value for name, value in attributes.items() if value is not None}
