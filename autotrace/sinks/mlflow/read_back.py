"""Trajectories out of MLflow again, with exact token ids: what ``autotrace compare --tracking-uri`` reads.

Needs ``mlflow`` itself, whose public search is what keeps working over its releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotrace.sinks.mlflow.tokens import token_ids
from autotrace.trajectory.model import Span, Trajectory

_NUMBERS = {"step": int, "rollout_n": int, "attempt": int}


def read(
    uri: str,
    traces: Sequence[str],
    step: int | None = None,
    sample: str | None = None,
    validate: bool = False,
    project: str | None = None,
) -> list[Trajectory]:
    """The named trajectories (whole ids), or the group of a sample in a step, by rollout, of the newest run of the
    project (an experiment of MLflow) that has it.

    Raises ``KeyError`` with a sentence for a trace or project that is not there, and where several projects have one.
    """
    import mlflow

    mlflow.set_tracking_uri(uri)
    if traces:
        return [_named(mlflow, trace) for trace in traces]
    words = {"step": str(step), "sample_index": str(sample), "validate": str(validate), "role": "trajectory"}
    query = " AND ".join(f"tags.{name} = '{_quoted(word)}'" for name, word in words.items())
    places = {
        experiment.experiment_id: experiment.name
        for experiment in mlflow.search_experiments()
        if project is None or experiment.name == project
    }
    if not places:
        raise KeyError(f"MLflow has no experiment {project}")
    found = mlflow.search_traces(locations=list(places), filter_string=query, return_type="list", max_results=1000)
    projects = sorted({places[trace.info.experiment_id] for trace in found})
    if len(projects) > 1:
        raise KeyError(f"several projects have a sample {sample} in step {step}: {', '.join(projects)}; --project NAME")
    newest = max(found, key=lambda trace: int(trace.info.request_time), default=None)
    made = [trajectory_of(trace) for trace in found if newest is not None and _run(trace) == _run(newest)]
    return sorted(made, key=lambda one: one.attributes.get("rollout_n") or 0)


def _run(trace: Any) -> str | None:
    return (trace.info.tags or {}).get("run_id")


def _named(mlflow: Any, trace: str) -> Trajectory:
    wanted = trace if trace.startswith("tr-") else f"tr-{trace}"
    try:
        found = mlflow.get_trace(wanted)
    except Exception as error:
        raise KeyError(f"MLflow has no trace {wanted} ({type(error).__name__}); whole ids are needed there") from None
    if found is None:
        raise KeyError(f"MLflow has no trace {wanted}; whole ids are needed there")
    return trajectory_of(found)


def trajectory_of(trace: Any) -> Trajectory:
    """An MLflow ``Trace`` that ``sinks.mlflow`` wrote, as it was before."""
    parts = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.start_time_ns))
    spans = [_span(part) for part in parts]
    ids = token_ids({part.span_id: part.attributes for part in parts if part.get_attribute("autotrace.role") == "llm"})
    texts: dict[str, str] = {}
    for span in spans:
        if span.span_id in ids:
            span.prompt_ids, span.response_ids = ids[span.span_id]
            span.response_tokens = len(span.response_ids)
            before = texts.get(span.prompt_base or "", "")
            span.prompt_text = before + (span.new_prompt_text or "")
            texts[span.span_id] = span.prompt_text + (span.response_text or "")
    tags = dict(trace.info.tags)
    attributes: dict[str, Any] = {
        name: _NUMBERS[name](word) if name in _NUMBERS and word.lstrip("-").isdigit() else word
        for name, word in tags.items()
        if not name.startswith("mlflow.")
    }
    facts = {one.name: one.value for one in trace.info.assessments or ()}
    facts.update({name: tags[name] for name in ("dropped",) if name in tags})
    return Trajectory(trace.info.trace_id.removeprefix("tr-"), tags.get("run_id", ""), spans, attributes, facts)


def _span(part: Any) -> Span:
    inputs = part.inputs if isinstance(part.inputs, dict) else {"value": part.inputs} if part.inputs else {}
    made = Span(
        span_id=part.span_id,
        parent_id=part.parent_id,
        name=part.name,
        role=str(part.get_attribute("autotrace.role") or "span"),
        key=str(part.get_attribute("autotrace.key") or ""),
        start_ns=part.start_time_ns,
        end_ns=part.end_time_ns,
        status=str(part.get_attribute("autotrace.status") or "OK"),
        inputs=inputs,
        output=part.outputs,
        attributes={name: value for name, value in part.attributes.items() if "." not in name},
    )
    for event in part.events or ():
        if event.name == "exception":
            known = event.attributes
            words = [str(known.get(f"exception.{name}", "")) for name in ("type", "message", "stacktrace")]
            made.error = (words[0], words[1], words[2])
    made.prompt_tokens = part.get_attribute("autotrace.prompt_tokens")
    if made.role == "llm":
        made.prompt_base = part.get_attribute("autotrace.prompt_base")
        made.new_prompt_text = "".join(str(message.get("content") or "") for message in inputs.get("messages") or ())
        made.response_text = _reply(part.outputs)
    return made


def _reply(outputs: Any) -> str | None:
    """What the model said; calls that were taken out of its text stand after it."""
    choices = outputs.get("choices") if isinstance(outputs, dict) else None
    if not choices:
        return None
    message = choices[0].get("message") or {}
    asked = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    words = [str(message.get("content") or ""), *(f"{one.get('name')}({one.get('arguments')})" for one in asked)]
    return "\n".join(word for word in words if word)


def _quoted(word: str) -> str:
    return word.replace("'", "''")
