"""What traces can be searched by in MLflow: tags, session, and feedback for numbers (tags compare as text only)."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from autotrace.insight.profile import codes, decode
from autotrace.sinks.payload import jsonable
from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import DETAILS, Span, Trajectory
from autotrace.trajectory.span_text import answer, answered_words, message_text

IDENTITY = (
    "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "project_name",
    "agent_name", "run_id", "attempt",
)  # fmt: skip
"""Attributes of a trajectory that become tags of the same name, as text: ``tags.step = '1'``, ``validate = 'True'``."""
OUTSIDE = ("trainer", "reward", "engine")
"""Roots of these roles are not trajectories: their step is the tag ``trainer_step`` (so that ``tags.step`` finds
trajectories alone), and they are not linked to the training run."""
TRACE_NAME = "mlflow.traceName"
MAX_FEEDBACK = 32
LONGEST = 250
_REWARD_PARTS = "reward_extra_info"


def tags_of(trajectory: Trajectory) -> dict[str, str]:
    """Tags of the trace, all text."""
    attributes = trajectory.attributes
    tags = {name: _word(attributes[name]) for name in IDENTITY if _scalar(attributes.get(name))}
    if trajectory.root.role in OUTSIDE and "step" in tags:
        tags[f"{trajectory.root.role}_step"] = tags.pop("step")
    tags["status"] = trajectory.status
    tags["role"] = text(trajectory.root.role)
    tags[TRACE_NAME] = _word(trajectory.root.name)[:LONGEST]
    if found := codes(decode(trajectory.profile)):
        tags["findings"] = " ".join(found)
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
    attributes = trajectory.attributes
    if trajectory.root.role != "trajectory":
        return None
    if attributes.get("uid") is not None:
        return _word(attributes["uid"])[:LONGEST]
    if attributes.get("sample_index") is not None:
        group = f"step-{attributes.get('step')}-sample-{_word(attributes['sample_index'])}"
        return f"{group}-validation"[:LONGEST] if attributes.get("validate") is True else group[:LONGEST]
    return None


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
    came out; at most 1000 characters each. A root without anything worth recording (a batch) says which it is."""
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
