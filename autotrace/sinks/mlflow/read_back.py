"""Trajectories out of MLflow again, with exact token ids: what ``autotrace compare --tracking-uri`` reads.

Needs ``mlflow`` itself, whose public search is what keeps working over its releases.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from autotrace.redact.masking import masked_uri
from autotrace.sinks import registry
from autotrace.sinks.mlflow.info import FINDING
from autotrace.sinks.mlflow.tokens import token_ids
from autotrace.sinks.mlflow.uri import absolute, check_uri, sqlite_path
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.spool.records import MEASURED
from autotrace.trajectory.model import Span, Trajectory

PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""For a person who waits, unless set: MLflow's own client tries a dead server for minutes."""
CONNECT_TIMEOUT = 5.0
"""Seconds."""
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_INTEGERS = ("step", "rollout_n", "attempt")


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

    Raises ``KeyError`` with a sentence for a trace or project that is not there, and where several projects have one;
    ``SinkError`` where MLflow cannot be read.
    """
    uri = absolute(uri)
    try:
        registry.usable("mlflow")
    except registry.BackendError as error:
        raise Refused(str(error)) from error
    check_readable(uri)
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow

        mlflow.set_tracking_uri(uri)
        if traces:
            return [_named(mlflow, trace) for trace in traces]
        return _group(mlflow, step, sample, validate, project)
    except KeyError:
        raise
    except Exception as error:  # of MLflow, SQLAlchemy, requests or a database driver
        first_line = (str(error).splitlines() or [type(error).__name__])[0].split("[SQL:")[0][:300]
        raise Refused(f"MLflow cannot read {masked_uri(uri)}: {first_line.replace(uri, masked_uri(uri))}") from error


def check_readable(uri: str) -> None:
    """Check that there is a store or a server at ``uri``, with one request and a short timeout.

    Raises ``Refused`` for what is wrong and ``Unavailable`` for what does not answer.
    """
    scheme = urlsplit(uri).scheme.split("+")[0].lower()
    if scheme == "sqlite":
        path = sqlite_path(uri)
        if path is None or not os.path.isfile(path):
            raise Refused(f"{masked_uri(uri)}: there is no such file")
        return
    try:
        check_uri(uri)
    except ValueError as error:
        raise Refused(str(error)) from error
    if scheme in ("http", "https"):
        from autotrace.sinks.mlflow.server import ServerStore

        server = ServerStore(uri)
        try:
            server.check_answers()
        finally:
            server.close()
        return
    database = urlsplit(uri)
    try:
        socket.create_connection(
            (database.hostname or "localhost", database.port or _PORTS[scheme]), CONNECT_TIMEOUT
        ).close()
    except (OSError, ValueError) as error:
        raise Unavailable(f"{masked_uri(uri)} does not answer: {error}") from error


def _group(mlflow: Any, step: int | None, sample: str | None, validate: bool, project: str | None) -> list[Trajectory]:
    tags = {"step": str(step), "sample_index": str(sample), "validate": str(validate), "role": "trajectory"}
    query = " AND ".join(f"tags.{name} = '{_quoted(value)}'" for name, value in tags.items())
    experiments = {
        experiment.experiment_id: experiment.name
        for experiment in mlflow.search_experiments()
        if project is None or experiment.name == project
    }
    if not experiments:
        raise KeyError(f"MLflow has no experiment {project}")
    traces = mlflow.search_traces(
        locations=list(experiments), filter_string=query, return_type="list", max_results=1000
    )
    projects = sorted({experiments[trace.info.experiment_id] for trace in traces})
    if len(projects) > 1:
        raise KeyError(f"several projects have a sample {sample} in step {step}: {', '.join(projects)}; --project NAME")
    newest = max(traces, key=lambda trace: int(trace.info.request_time), default=None)
    group = [trajectory_of(trace) for trace in traces if newest is not None and _run(trace) == _run(newest)]
    return sorted(group, key=lambda trajectory: trajectory.attributes.get("rollout_n") or 0)


def _run(trace: Any) -> str | None:
    return (trace.info.tags or {}).get("run_id")


def _named(mlflow: Any, trace_id: str) -> Trajectory:
    whole_id = trace_id if trace_id.startswith("tr-") else f"tr-{trace_id}"
    try:
        trace = mlflow.get_trace(whole_id)
    except Exception as error:
        raise KeyError(f"MLflow has no trace {whole_id} ({type(error).__name__}); write whole ids here") from None
    if trace is None:
        raise KeyError(f"MLflow has no trace {whole_id}; write whole ids here")
    return trajectory_of(trace)


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
        name: int(value) if name in _INTEGERS and value.lstrip("-").isdigit() else value
        for name, value in tags.items()
        if not name.startswith("mlflow.")
    }
    facts = {assessment.name: assessment.value for assessment in trace.info.assessments or ()}
    facts.pop(FINDING, None)
    facts.update({name: tags[name] for name in ("dropped",) if name in tags})
    return Trajectory(trace.info.trace_id.removeprefix("tr-"), tags.get("run_id", ""), spans, attributes, facts)


def _span(part: Any) -> Span:
    inputs = part.inputs if isinstance(part.inputs, dict) else {"value": part.inputs} if part.inputs else {}
    span = Span(
        span_id=part.span_id,
        parent_id=part.parent_id,
        name=str(part.get_attribute("autotrace.name") or part.name),
        role=str(part.get_attribute("autotrace.role") or "span"),
        key=str(part.get_attribute("autotrace.key") or ""),
        start_ns=part.start_time_ns,
        end_ns=part.end_time_ns,
        status=str(part.get_attribute("autotrace.status") or "OK"),
        inputs=inputs,
        output=part.outputs,
        attributes={name: value for name, value in part.attributes.items() if "." not in name},
        title=part.name if part.get_attribute("autotrace.name") else None,
    )
    for event in part.events or ():
        if event.name == "exception":
            kind, message, stack = (
                str(event.attributes.get(f"exception.{name}", "")) for name in ("type", "message", "stacktrace")
            )
            span.error = (kind, message, stack)
    span.prompt_tokens = part.get_attribute("autotrace.prompt_tokens")
    for name in MEASURED:
        value = part.get_attribute(f"autotrace.{name}")
        if value is not None:
            setattr(span, name, value)
    if span.role == "llm":
        span.prompt_base = part.get_attribute("autotrace.prompt_base")
        span.new_prompt_text = "".join(str(message.get("content") or "") for message in inputs.get("messages") or ())
        span.response_text = _reply(part.outputs)
    return span


def _reply(outputs: Any) -> str | None:
    """The model's message; tool calls that were parsed out of its text follow it."""
    choices = outputs.get("choices") if isinstance(outputs, dict) else None
    if not choices:
        return None
    message = choices[0].get("message") or {}
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    calls = [f"{function.get('name')}({function.get('arguments')})" for function in functions]
    return "\n".join(line for line in (str(message.get("content") or ""), *calls) if line)


def _quoted(value: str) -> str:
    return value.replace("'", "''")
