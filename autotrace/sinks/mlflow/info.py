"""What MLflow keeps of a trace beside its spans: state, times, token totals, the run it belongs to, feedback."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from autotrace.insight.profile import marks
from autotrace.insight.registry import by_weight
from autotrace.insight.words import at
from autotrace.sinks import payload
from autotrace.sinks.mlflow.spans import usage
from autotrace.sinks.mlflow.tags import LONGEST, assessment_id, feedback_of, linked, previews, session_of, tags_of
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import OK, Trajectory

SOURCE = "autotrace"
"""The source of the feedback, as MLflow shows it."""
FINDING = "finding"
"""Name of the feedback that is a finding's code."""
MAX_FINDINGS, MAX_RATIONALE = 16, 500
TOKEN_USAGE = "mlflow.trace.tokenUsage"


def trace_id_of(trajectory: Trajectory) -> str:
    """MLflow's id of the trace."""
    return f"tr-{trajectory.trace_id}"


@dataclass(frozen=True)
class Feedback:
    """Something said about a trace: a number, a truth value, a finding."""

    id: str
    name: str
    value: float | bool | str
    """Text where the number is not finite."""
    rationale: str | None = None
    """Why, where it is known."""


@dataclass(frozen=True)
class TraceDescription:
    """A trace without its spans. Times are milliseconds since the epoch, as MLflow keeps them."""

    trace_id: str
    start_ms: int
    duration_ms: int
    end_ms: int
    """End of the root: when the feedback counts as given."""
    state: str
    metadata: dict[str, str]
    tags: dict[str, str]
    feedback: tuple[Feedback, ...]
    request_preview: str | None
    response_preview: str | None

    def message(self, experiment_id: str) -> dict[str, Any]:
        """The JSON form of MLflow's ``TraceInfoV3``."""
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment_id}}
        info: dict[str, Any] = {
            "trace_id": self.trace_id,
            "trace_location": location,
            "request_time": _time(self.start_ms),
            "execution_duration": f"{self.duration_ms // 1000}.{self.duration_ms % 1000:03d}s",
            "state": self.state,
            "trace_metadata": self.metadata,
            "tags": self.tags,
            "assessments": [self._assessment(feedback) for feedback in self.feedback],
        }
        shown = {"request_preview": self.request_preview, "response_preview": self.response_preview}
        return info | {name: preview for name, preview in shown.items() if preview}

    def _assessment(self, feedback: Feedback) -> dict[str, Any]:
        at = _time(self.end_ms)
        return {
            "assessment_id": feedback.id,
            "assessment_name": feedback.name,
            "trace_id": self.trace_id,
            "source": {"source_type": "CODE", "source_id": SOURCE},
            "create_time": at,
            "last_update_time": at,
            "feedback": {"value": feedback.value},
            "valid": True,
            **({"rationale": feedback.rationale} if feedback.rationale else {}),
        }


def describe(trajectory: Trajectory, run_id: str | None) -> TraceDescription:
    """The trace of ``trajectory``, linked to the run ``run_id``.

    Its times are those of all of its spans and not the root's alone: so MLflow computes them from spans, and what it
    computes again when some of the spans are replaced is then the same.
    """
    root = trajectory.root
    start_ms = max(0, min(span.start_ns for span in trajectory.spans)) // 1_000_000
    last_ms = max(0, max(payload.end_of(trajectory, span) for span in trajectory.spans)) // 1_000_000
    question, answer = previews(trajectory)
    return TraceDescription(
        trace_id_of(trajectory),
        start_ms,
        max(0, last_ms - start_ms),
        max(0, root.end_ns or root.start_ns, root.start_ns) // 1_000_000,
        "OK" if root.status == OK else "ERROR",
        _metadata(trajectory, run_id),
        tags_of(trajectory),
        (*_facts(trajectory), *_findings(trajectory)),
        question or None,
        answer or None,
    )


def _facts(trajectory: Trajectory) -> Iterator[Feedback]:
    for name, value in feedback_of(trajectory).items():
        shown = value if math.isfinite(value) else str(value)
        yield Feedback(assessment_id(trajectory.trace_id, name), name, shown)


def _findings(trajectory: Trajectory) -> Iterator[Feedback]:
    """Each code once, all under one name, so that ``feedback.finding = 'AT-...'`` finds them."""
    for mark in by_weight(marks(trajectory.profile))[:MAX_FINDINGS]:
        code, why = text(mark.code)[:LONGEST], text(at(mark))[:MAX_RATIONALE]
        yield Feedback(assessment_id(trajectory.trace_id, f"{FINDING}/{code}"), FINDING, code, why or None)


def _metadata(trajectory: Trajectory, run_id: str | None) -> dict[str, str]:
    metadata: dict[str, str] = {}
    usages = [counts for span in trajectory.llm_spans if (counts := usage(span))]
    if usages:
        totals = {name: sum(usage_of_call[name] for usage_of_call in usages) for name in usages[0]}
        metadata[TOKEN_USAGE] = json.dumps(totals)
    session = session_of(trajectory)
    if session:
        metadata["mlflow.trace.session"] = session
    if run_id and linked(trajectory):
        metadata["mlflow.sourceRun"] = run_id
    return metadata


def _time(ms: int) -> str:
    """RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
