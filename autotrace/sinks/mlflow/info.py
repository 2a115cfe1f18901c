"""What MLflow keeps of a trace beside its spans: state, times, token totals, the run it belongs to, feedback.

One description for both ways of writing: the JSON form of MLflow's own ``TraceInfoV3`` message.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any

from autotrace.sinks.mlflow.spans import usage
from autotrace.sinks.mlflow.tags import assessment_id, feedback_of, linked, previews, session_of, tags_of
from autotrace.trajectory.model import OK, Trajectory

SOURCE = "autotrace"
"""The source of the feedback, as MLflow shows it."""


def trace_id_of(trajectory: Trajectory) -> str:
    """MLflow's id of the trace."""
    return f"tr-{trajectory.trace_id}"


def describe(trajectory: Trajectory, experiment_id: str, run_id: str | None) -> dict[str, Any]:
    """The trace as MLflow's ``StartTraceV3`` wants it.

    It fixes times, state and token totals, so all of them stand in it. To be sent before the spans: then MLflow inserts
    in one go what it would otherwise merge row by row (21 ms of CPU for a trajectory of 5 spans become 10).
    """
    root = trajectory.root
    end = max(root.end_ns or root.start_ns, root.start_ns)
    info: dict[str, Any] = {
        "trace_id": trace_id_of(trajectory),
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment_id}},
        "request_time": _time(root.start_ns),
        "execution_duration": f"{(end - root.start_ns) // 1_000_000 / 1000:.3f}s",
        "state": "OK" if root.status == OK else "ERROR",
        "trace_metadata": _metadata(trajectory, run_id),
        "tags": {**tags_of(trajectory), "mlflow.traceName": root.name[:250]},
        "assessments": [
            _feedback(trajectory, name, value, _time(end)) for name, value in feedback_of(trajectory).items()
        ],
    }
    for name, preview in zip(("request_preview", "response_preview"), previews(trajectory), strict=True):
        if preview:
            info[name] = preview
    return info


def _metadata(trajectory: Trajectory, run_id: str | None) -> dict[str, str]:
    metadata: dict[str, str] = {}
    usages = [counts for span in trajectory.llm_spans if (counts := usage(span))]
    if usages:
        totals = {name: sum(usage_of_call[name] for usage_of_call in usages) for name in usages[0]}
        metadata["mlflow.trace.tokenUsage"] = json.dumps(totals)
    session = session_of(trajectory)
    if session:
        metadata["mlflow.trace.session"] = session
    if run_id and linked(trajectory):
        metadata["mlflow.sourceRun"] = run_id
    return metadata


def _feedback(trajectory: Trajectory, name: str, value: float | bool, at: str) -> dict[str, Any]:
    finite = value if math.isfinite(value) else str(value)
    return {
        "assessment_id": assessment_id(trajectory.trace_id, name),
        "assessment_name": name,
        "trace_id": trace_id_of(trajectory),
        "source": {"source_type": "CODE", "source_id": SOURCE},
        "create_time": at,
        "last_update_time": at,
        "feedback": {"value": finite},
        "valid": True,
    }


def _time(ns: int) -> str:
    """RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(max(0, ns) // 1_000_000 / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
