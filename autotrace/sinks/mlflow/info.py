"""What MLflow keeps of a trace beside its spans: state, times, token totals, the run it belongs to, feedback."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from autotrace.insight import registry
from autotrace.insight.profile import marks
from autotrace.insight.registry import by_weight
from autotrace.insight.words import at
from autotrace.sinks import payload
from autotrace.sinks.mlflow.spans import usage
from autotrace.sinks.payload import jsonable
from autotrace.tables import trajectories
from autotrace.trajectory.jsonable import text, word
from autotrace.trajectory.model import DETAILS, OK, Span, Trajectory, group_of
from autotrace.trajectory.span_text import answer, answered_words, message_text

SOURCE = "autotrace"
"""The source of the feedback, as MLflow shows it."""
FINDING = "finding"
"""Name of the feedback that is a finding's code."""
MAX_FINDINGS, MAX_RATIONALE = 16, 500
HIGH, MEDIUM = 0.7, 0.3
"""From which weight on a finding's issue is severe."""
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
    issue: str | None = None
    """Name of the issue that this refers to; ``name`` is its id. None: it is feedback."""
    span_id: str | None = None
    """The call that it is about."""

    @property
    def kind(self) -> str:
        """As MLflow calls it."""
        return "feedback" if self.issue is None else "issue"


@dataclass(frozen=True)
class Issue:
    """A kind of finding, as MLflow lists it for an experiment."""

    name: str
    description: str
    severity: str
    root_causes: tuple[str, ...]
    categories: tuple[str, ...]

    @classmethod
    def of(cls, code: str) -> Issue:
        """The issue of a finding's code."""
        known = registry.codes().get(code)
        if known is None:  # of a detector of another package, which is not installed here
            name = _no_nul(text(code))[:LONGEST]
            return cls(name, name, "medium", (), ())
        severity = "high" if known.weight >= HIGH else "medium" if known.weight >= MEDIUM else "low"
        words = "\n\n".join(part for part in (known.what, known.remedy) if part)
        return cls(f"{code}: {known.title}"[:LONGEST], words, severity, (known.why,), (known.family or FINDING,))


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
            feedback.kind: {"value": feedback.value} if feedback.issue is None else {"issue_name": feedback.issue},
            **({"span_id": feedback.span_id} if feedback.span_id else {}),
            "valid": True,
            **({"rationale": feedback.rationale} if feedback.rationale else {}),
        }


def describe(trajectory: Trajectory, run_id: str | None, issues: Mapping[str, str] | None = None) -> TraceDescription:
    """The trace of ``trajectory``, linked to the run ``run_id``. ``issues``: code of a finding -> id of its issue.

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
        (*_facts(trajectory), *_findings(trajectory, issues or {})),
        question or None,
        answer or None,
    )


def _facts(trajectory: Trajectory) -> Iterator[Feedback]:
    for name, value in feedback_of(trajectory).items():
        shown = value if math.isfinite(value) else str(value)
        yield Feedback(assessment_id(trajectory.trace_id, name), name, shown)


def _findings(trajectory: Trajectory, issues: Mapping[str, str]) -> Iterator[Feedback]:
    """Each code once, all under one name, so that ``feedback.finding = 'AT-...'`` finds them; and a reference to its
    issue, at the call of its turn, where there is one."""
    calls = trajectory.llm_spans
    for mark in by_weight(marks(trajectory.profile))[:MAX_FINDINGS]:
        code, why = text(mark.code)[:LONGEST], text(at(mark))[:MAX_RATIONALE]
        yield Feedback(assessment_id(trajectory.trace_id, f"{FINDING}/{code}"), FINDING, code, why or None)
        if (issue := issues.get(mark.code)) is not None:
            at_call = calls[mark.turn - 1].span_id if mark.turn and mark.turn <= len(calls) else None
            own = assessment_id(trajectory.trace_id, f"issue/{code}")
            yield Feedback(own, issue, code, why or None, Issue.of(mark.code).name, at_call)


def shown_codes(trajectory: Trajectory) -> list[str]:
    """The codes of its findings that MLflow gets."""
    return [mark.code for mark in by_weight(marks(trajectory.profile))[:MAX_FINDINGS]]


def _metadata(trajectory: Trajectory, run_id: str | None) -> dict[str, str]:
    metadata: dict[str, str] = {}
    if (total := payload.total_usage(trajectory)) is not None:
        metadata[TOKEN_USAGE] = json.dumps(usage(total))
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


OUTSIDE = ("trainer", "reward", "engine")
"""Roots of these roles are not trajectories: their step is the tag ``trainer_step`` (so that ``tags.step`` finds
trajectories alone), and they are not linked to the training run."""
TRACE_NAME = "mlflow.traceName"
MAX_FEEDBACK = 32
LONGEST = 250
_REWARD_PARTS = "reward_extra_info"


def tags_of(trajectory: Trajectory) -> dict[str, str]:
    """Tags of the trace, all text: ``tags.step = '1'``, ``validate = 'True'``."""
    tags = {
        name: _word(" ".join(value) if isinstance(value, list) else value)
        for name, value in trajectories.tags(trajectory).items()
    }
    if trajectory.root.role in OUTSIDE and "step" in tags:
        tags[f"{trajectory.root.role}_step"] = tags.pop("step")
    tags[TRACE_NAME] = _word(trajectory.root.name)[:LONGEST]
    if trajectory.turns:
        tags["turns"] = str(trajectory.turns)
    for name, value in trajectory.facts.items():
        if name not in tags and _scalar(value) and re.fullmatch(r"[\w\-. /]{1,200}", name):
            tags[name] = _word(value)
    return tags


def _scalar(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool))


def _word(value: Any) -> str:
    return _no_nul(text(str(value))[:1000])


def session_of(trajectory: Trajectory) -> str | None:
    """The GRPO group: the n rollouts of one prompt in one step show as one session. At most 250 characters."""
    group = word(trajectory.attributes.get("uid")) or group_of(trajectory.attributes)
    return _word(group)[:LONGEST] if group is not None and trajectory.root.role == "trajectory" else None


def linked(trajectory: Trajectory) -> bool:
    """Whether the trace belongs on the page of the training run."""
    return trajectory.root.role not in OUTSIDE


def feedback_of(trajectory: Trajectory) -> dict[str, Any]:
    """Name -> number or truth value: the reward, its parts, advantage and every other fact of these types."""
    feedback: dict[str, Any] = {}
    facts = sorted(trajectory.facts.items(), key=lambda fact: (not fact[0].startswith("reward"), fact[0]))
    for name, value in facts:
        if isinstance(value, (bool, int, float)):
            feedback[_no_nul(text(name)[:LONGEST])] = value
    for name, value in facts:
        if isinstance(value, dict) and name.partition(".")[0] not in DETAILS:
            for part, number in value.items():
                # Parts of the reward under veRL's own names; a part called like another fact keeps the long name.
                short = part if name == _REWARD_PARTS and part not in feedback else f"{name}.{part}"
                if isinstance(number, (bool, int, float)):
                    feedback.setdefault(_no_nul(text(short)[:LONGEST]), number)
    return dict(list(feedback.items())[:MAX_FEEDBACK])


def assessment_id(trace_id: str, name: str) -> str:
    """The same for the same fact of the same trace, so that sending it again replaces it."""
    return "a-" + hashlib.blake2b(f"{trace_id}/{name}".encode(), digest_size=16).hexdigest()


def previews(trajectory: Trajectory) -> tuple[str | None, str | None]:
    """What the user said last before the model first answered, and its last answer, else what went into the root and
    came out; at most 1000 characters each. Of a root that was given nothing worth recording (a batch): which it is."""
    calls, root = trajectory.llm_spans, trajectory.root
    asked = [message for span in calls[:1] for message in span.messages or [] if message.get("role") == "user"]
    question = asked[-1].get("content") if asked else None
    answered = next((words for span in reversed(calls) if (words := _answer(span))), None)
    return (
        _preview((jsonable(root.inputs) or _which(trajectory)) if question is None else question),
        _preview((jsonable(root.output) or None) if answered is None else answered),
    )


def _which(trajectory: Trajectory) -> str | None:
    """``step 3, validation``."""
    attributes = trajectory.attributes
    words = [f"{name} {attributes[name]}" for name in ("step", "data_source") if _scalar(attributes.get(name))]
    return ", ".join([*words, *(["validation"] if attributes.get("validate") is True else [])]) or None


def _answer(span: Span) -> str | None:
    """The words of the answer, without the marks of the template where they are known."""
    message = answer(span)
    return answered_words(span) if message is None else message_text(message, named=False)


def _preview(value: Any) -> str | None:
    if value is None:
        return None
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _no_nul(text(shown)[:1000])


def _no_nul(value: str) -> str:
    """PostgreSQL has no text with a NUL."""
    return value.replace("\0", "\ufffd")
