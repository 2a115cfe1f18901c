"""Describe a trace for MLflow, apart from the spans: state, times, token totals, run, feedback."""

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
"""Names the source of the feedback in MLflow."""
FINDING = "finding"
"""Name of the feedback that is a finding's code."""
MAX_FINDINGS, MAX_RATIONALE = 16, 500
HIGH, MEDIUM = 0.7, 0.3
"""Limits of the weight above which a finding's issue is severe, or medium."""
TOKEN_USAGE = "mlflow.trace.tokenUsage"


def trace_id_of(trajectory: Trajectory) -> str:
    """Return MLflow's id of the trace."""
    return f"tr-{trajectory.trace_id}"


@dataclass(frozen=True)
class Feedback:
    """Holds a statement about a trace: a number, a truth value, a finding."""

    id: str
    name: str
    value: float | bool | str
    """Value; text if the number is not finite."""
    rationale: str | None = None
    """Reason, if known."""
    issue: str | None = None
    """Name of the issue that the feedback refers to; ``name`` is then the issue's id. None: plain feedback."""
    span_id: str | None = None
    """Names the span of the call that the feedback is about."""

    @property
    def kind(self) -> str:
        """Return MLflow's word for the kind."""
        return "feedback" if self.issue is None else "issue"


@dataclass(frozen=True)
class Issue:
    """Describes a kind of finding, as MLflow lists the kind for an experiment."""

    name: str
    description: str
    severity: str
    root_causes: tuple[str, ...]
    categories: tuple[str, ...]

    @classmethod
    def of(cls, code: str) -> Issue:
        """Build the issue of a finding's code."""
        known = registry.codes().get(code)
        if known is None:  # of a detector of another package, which is not installed here
            name = _no_nul(text(code))[:LONGEST]
            return cls(name, name, "medium", (), ())
        severity = "high" if known.weight >= HIGH else "medium" if known.weight >= MEDIUM else "low"
        words = "\n\n".join(part for part in (known.what, known.remedy) if part)
        return cls(f"{code}: {known.title}"[:LONGEST], words, severity, (known.why,), (known.family or FINDING,))


@dataclass(frozen=True)
class TraceDescription:
    """Describes a trace without spans. Times are milliseconds since the epoch, as in MLflow."""

    trace_id: str
    start_ms: int
    duration_ms: int
    end_ms: int
    """End of the root, which counts as the time of the feedback."""
    state: str
    metadata: dict[str, str]
    tags: dict[str, str]
    feedback: tuple[Feedback, ...]
    request_preview: str | None
    response_preview: str | None

    def message(self, experiment_id: str) -> dict[str, Any]:
        """Return the JSON form of MLflow's ``TraceInfoV3``."""
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
    """Describe ``trajectory``, linked to the run ``run_id``. ``issues`` maps a finding's code to the id of the issue.

    The times cover all spans, not the root alone. MLflow also computes the times from spans, so a computation after
    some spans were replaced gives the same result.
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
    """Yield each code once, under a common name, so that ``feedback.finding = 'AT-...'`` finds the code; with a known
    issue, also yield a reference to the issue, at the call of the turn."""
    calls = trajectory.llm_spans
    for mark in by_weight(marks(trajectory.profile))[:MAX_FINDINGS]:
        code, why = text(mark.code)[:LONGEST], text(at(mark))[:MAX_RATIONALE]
        yield Feedback(assessment_id(trajectory.trace_id, f"{FINDING}/{code}"), FINDING, code, why or None)
        if (issue := issues.get(mark.code)) is not None:
            at_call = calls[mark.turn - 1].span_id if mark.turn and mark.turn <= len(calls) else None
            own = assessment_id(trajectory.trace_id, f"issue/{code}")
            yield Feedback(own, issue, code, why or None, Issue.of(mark.code).name, at_call)


def shown_codes(trajectory: Trajectory) -> list[str]:
    """Return the codes of the trajectory's findings that MLflow gets."""
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
    """Format a time as RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


OUTSIDE = ("trainer", "reward", "engine")
"""Roles of roots that are not trajectories. The step of such a root is the tag ``trainer_step`` (so that ``tags.step``
finds only trajectories), and the root is not linked to the training run."""
TRACE_NAME = "mlflow.traceName"
MAX_FEEDBACK = 32
LONGEST = 250
_REWARD_PARTS = "reward_extra_info"


def tags_of(trajectory: Trajectory) -> dict[str, str]:
    """Return the tags of the trace, all text: ``tags.step = '1'``, ``validate = 'True'``."""
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
    """Return the GRPO group: the n rollouts of a prompt in a step show as a session, ``step 1, sample 15 (9f2c41)``.
    At most 250 characters. The digits differ for groups of the same name: of other runs, of a data set without an
    index."""
    who = trajectory.attributes
    group = word(who.get("uid")) or group_of(who)
    if group is None or trajectory.root.role != "trajectory":
        return None
    step, sample = who.get("step"), word(who.get("sample_index"))
    if step is None or sample is None:
        return _word(group)[:LONGEST]
    digits = hashlib.blake2b(f"{trajectory.run_id}/{group}".encode(errors="replace"), digest_size=3).hexdigest()
    kind = ", validation" if who.get("validate") is True else ""
    return f"{_word(f'step {step}, sample {sample}')[: LONGEST - 30]}{kind} ({digits})"


def linked(trajectory: Trajectory) -> bool:
    """Tell whether the trace belongs on the page of the training run."""
    return trajectory.root.role not in OUTSIDE


def feedback_of(trajectory: Trajectory) -> dict[str, Any]:
    """Map names to numbers or truth values: the reward, its parts, advantage and every other fact of these types."""
    feedback: dict[str, Any] = {}
    facts = sorted(trajectory.facts.items(), key=lambda fact: (not fact[0].startswith("reward"), fact[0]))
    for name, value in facts:
        if isinstance(value, (bool, int, float)):
            feedback[_no_nul(text(name)[:LONGEST])] = value
    for name, value in facts:
        if isinstance(value, dict) and name.partition(".")[0] not in DETAILS:
            for part, number in value.items():
                # Parts of the reward keep veRL's own names; a part with the name of another fact keeps the long name.
                short = part if name == _REWARD_PARTS and part not in feedback else f"{name}.{part}"
                if isinstance(number, (bool, int, float)):
                    feedback.setdefault(_no_nul(text(short)[:LONGEST]), number)
    return dict(list(feedback.items())[:MAX_FEEDBACK])


def assessment_id(trace_id: str, name: str) -> str:
    """Return a stable id derived from trace id and fact name, so that sending a fact twice replaces the fact."""
    return "a-" + hashlib.blake2b(f"{trace_id}/{name}".encode(), digest_size=16).hexdigest()


def previews(trajectory: Trajectory) -> tuple[str | None, str | None]:
    """Return the last user message before the model's first answer, and the model's last answer.

    If unknown, the root's input and output; at most 1000 characters each. A root without an input worth recording (a
    batch) shows which batch the root is.
    """
    calls, root = trajectory.llm_spans, trajectory.root
    asked = [message for span in calls[:1] for message in span.messages or [] if message.get("role") == "user"]
    question = asked[-1].get("content") if asked else None
    answered = next((words for span in reversed(calls) if (words := _answer(span))), None)
    return (
        _preview((jsonable(root.inputs) or _which(trajectory)) if question is None else question),
        _preview((jsonable(root.output) or None) if answered is None else answered),
    )


def _which(trajectory: Trajectory) -> str | None:
    """Describe a batch: ``step 3, validation``."""
    attributes = trajectory.attributes
    words = [f"{name} {attributes[name]}" for name in ("step", "data_source") if _scalar(attributes.get(name))]
    return ", ".join([*words, *(["validation"] if attributes.get("validate") is True else [])]) or None


def _answer(span: Span) -> str | None:
    """Return the words of the answer, without the marks of a known template."""
    message = answer(span)
    return answered_words(span) if message is None else message_text(message, named=False)


def _preview(value: Any) -> str | None:
    if value is None:
        return None
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _no_nul(text(shown)[:1000])


def _no_nul(value: str) -> str:
    """Replace NUL, which PostgreSQL's text cannot hold."""
    return value.replace("\0", "\ufffd")
