"""Trajectories as a backend shows them, in one shape for both: what the table compares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launches import Launch

ReadBack = Callable[..., dict[str, list[dict[str, Any]]]]
"""``read_back("dev/rl", name={...arguments of get_calls...})`` through W&B's client."""


@dataclass
class Seen:
    """One trajectory, read back through the backend's public client."""

    trace_id: str
    attributes: dict[str, str]
    """veRL's keys, as text."""
    facts: dict[str, Any]
    """Feedback by name."""
    texts: dict[str, Any]
    """``prompt_text``, ``response_text``, ``response_parts``."""
    spans: int
    run: str | None
    """The trainer's run it is linked to."""


def ids_in_mlflow(uri: str, project: str, query: str | None = None, run_id: str | None = None) -> set[str]:
    """Trace ids of the trajectories that MLflow finds."""
    found = _search(uri, project, query, run_id, include_spans=False)
    ids = [trace.info.trace_id.removeprefix("tr-") for trace in found]
    assert len(set(ids)) == len(ids), "a trajectory twice"
    return set(ids)


def in_mlflow(uri: str, project: str, query: str | None = None) -> list[Seen]:
    """What MLflow finds, read whole."""
    return [_of_mlflow(trace) for trace in _search(uri, project, query, None, include_spans=True)]


def _search(uri: str, project: str, query: str | None, run_id: str | None, include_spans: bool) -> list[Any]:
    """Trajectories through ``mlflow.search_traces``; none where the experiment does not exist."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    experiment = mlflow.get_experiment_by_name(project)
    if experiment is None:
        return []
    found = mlflow.search_traces(
        locations=[experiment.experiment_id], filter_string=query, run_id=run_id, return_type="list", max_results=1000,
        include_spans=include_spans,
    )  # fmt: skip
    return [trace for trace in found if trace.info.tags.get("role") == "trajectory"]


def _of_mlflow(trace: Any) -> Seen:
    (agent,) = [span for span in trace.data.spans if span.get_attribute("autotrace.role") == "agent"]
    facts: dict[str, list[Any]] = {}
    for one in trace.info.assessments:
        if one.name == "finding" or one.feedback is None:  # several codes share the name; a reference to an issue
            continue
        facts.setdefault(one.name, []).append(one.value)
    assert all(len(values) == 1 for values in facts.values()), f"said twice: {facts}"
    return Seen(
        trace.info.trace_id.removeprefix("tr-"),
        dict(trace.info.tags),
        {name: values[0] for name, values in facts.items()},
        dict(agent.outputs),
        len(trace.data.spans),
        trace.info.trace_metadata.get("mlflow.sourceRun"),
    )


ROOTS = {"trace_roots_only": True}


def in_weave(read_back: ReadBack, project: str, **conditions: Any) -> dict[str, list[Seen]]:
    """Through W&B's client: ``all`` trajectories, and those that meet each of ``conditions``."""
    queries = {name: {"filter": ROOTS, "query": {"$expr": query}} for name, query in conditions.items()}
    found = read_back(f"dev/{project}", everything={}, roots={"filter": ROOTS}, **queries)
    spans: dict[str, int] = {}
    for call in found["everything"]:
        spans[call["trace_id"]] = spans.get(call["trace_id"], 0) + 1
    named = {"all" if name == "roots" else name: calls for name, calls in found.items() if name != "everything"}
    return {
        name: [_of_weave(call, spans[call["trace_id"]]) for call in calls if call["attributes"]["role"] == "trajectory"]
        for name, calls in named.items()
    }


def _of_weave(call: Mapping[str, Any], spans: int) -> Seen:
    attributes = {name: str(value) for name, value in call["attributes"].items()}
    output = call["output"] or {}
    scores = {name.rpartition(".")[2]: value for name, value in call["feedback"].items()}
    scores.pop("finding", None)  # is no fact
    facts = {**(output.get("facts") or {}), **scores}  # known when it was sent, and said later
    assert output.get("reward", scores.get("reward")) == scores.get("reward")
    return Seen(call["id"].replace("-", ""), attributes, facts, output, spans, call["wb_run_id"])


def where(*conditions: tuple[str, str, Any]) -> dict[str, Any]:
    """``(field, operator, value)`` in Weave's language; numbers other than equals need a conversion."""
    made = []
    for name, operator, value in conditions:
        read: dict[str, Any] = {"$getField": name}
        converted = {"$convert": {"input": read, "to": "double"}} if operator != "$eq" else read
        made.append({operator: [converted, {"$literal": value}]})
    return {"$and": made}


def numbers(text: Any) -> set[str]:
    """Which questions a text mentions."""
    return set(re.findall(r"number (\d+)", text if isinstance(text, str) else json.dumps(text)))


_mlflow: dict[str, list[Seen]] = {}
_weave: dict[str, list[Seen]] = {}


def mlflow_of(launch: Launch) -> list[Seen]:
    """All of the run's trajectories; asked for once."""
    if launch.name not in _mlflow:
        _mlflow[launch.name] = in_mlflow(launch.variables["MLFLOW_TRACKING_URI"], launch.project)
    return _mlflow[launch.name]


def found_in_mlflow(launch: Launch, query: str | None = None, run_id: str | None = None) -> set[str]:
    """Ids of the run's trajectories that MLflow finds."""
    return ids_in_mlflow(launch.variables["MLFLOW_TRACKING_URI"], launch.project, query, run_id)


def weave_of(read_back: ReadBack, launch: Launch) -> list[Seen]:
    """All of the run's trajectories; asked for once."""
    if launch.name not in _weave:
        _weave[launch.name] = in_weave(read_back, launch.project)["all"]
    return _weave[launch.name]


def keyed(seen: list[Seen]) -> dict[str, Seen]:
    """By trace id."""
    found = {one.trace_id: one for one in seen}
    assert len(found) == len(seen), "a trajectory twice"
    return found


def spoken(text: str) -> str:
    """As veRL dumps it: without special tokens."""
    return re.sub(r"<\|(?:im_start|im_end|pad)\|>", "", text)
