"""The same trajectories into two MLflow databases, by rows and through MLflow's store class, and what differs.

As a program, for a release of MLflow in another environment: ``both_ways.py URI OTHER_URI`` prints the differences.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotrace.sinks.mlflow.uri import LIBRARIES
from autotrace.sinks.mlflow.uri import store_class as import_store

if __name__ == "__main__":  # as the shipper does, whose process is its own
    import_store()

import mlflow
import sqlalchemy
from rollouts import info, trajectory

from autotrace.sinks.mlflow import own_file
from autotrace.sinks.mlflow.sending import MlflowTrace
from autotrace.sinks.mlflow.sink import MlflowSink
from autotrace.tables.light_imports import absent
from autotrace.trajectory.model import Trajectory

PROJECT = "both ways"
OWN = {"association_id", "created_time", "db_payload_generation"}
"""Columns that differ by chance, and one that counts how often was written."""
QUERIES = (
    "tags.step = '3'",
    "tags.rollout_n = '1' AND tags.status = 'OK'",
    "feedback.reward > 0.75",
    "metadata.mlflow.trace.session LIKE 'step %, sample %'",
    "trace.name LIKE '%_run_agent_loop'",
)


def rollouts() -> list[Trajectory]:
    """Everything that a sink meets."""
    made = [trajectory(sample=1, rollout=number, reward=0.5 + number) for number in range(3)]
    failed = made[1].spans[3]
    failed.status, failed.error = "ERROR", ("ValueError", "no such tööl", "Traceback ...\nValueError: \0")
    made[0].spans[4].status = "INTERRUPTED"
    made[0].spans[3].end_ns = None
    odd = made[0].spans[2]
    odd.attributes |= {
        "list": "[1, 2]", "quoted": '"hi"', "twice": json.dumps(json.dumps([1])), "broken": "{not json", "f": 0.25,
        "yes": True, "none": None, "big": 1 << 70, "ä": "ö\0\u2028", "blank": "",
    }  # fmt: skip
    odd.inputs = {"lone": "\ud800", "nan": float("inf"), "big": 1 << 80, "deep": [[[["x"]]]], "nul": "\0"}
    made[0].facts |= {"acc": True, "advantage": float("nan"), "nul": "\0", "dropped": "stale"}
    made[2].notes.append("two records were dropped")
    trainer = Trajectory(trajectory(step=99).trace_id, "run", [copy.deepcopy(made[2].spans[0])], {"step": 3})
    trainer.root.role, trainer.root.inputs, trainer.root.output = "trainer", {"a": [1, 2]}, "done é"
    foreign, priced, named = trajectory(sample=5), trajectory(sample=6), trajectory(sample=7)
    foreign.spans[2].attributes["gen_ai.request.model"] = "gpt-4o"
    foreign.spans[3].attributes["input.value"] = "what another tracer calls its input"
    for span in priced.spans:
        span.attributes["model"] = "gpt-4o"
    named.spans[3].inputs = {"model": "of a tool"}
    silent = trajectory(sample=8)
    silent.spans = [silent.root]
    silent.root.inputs, silent.root.output = {}, None
    made += [trainer, foreign, priced, named, silent]
    for one in made:
        one.attributes["project_name"] = PROJECT
    return made


def later(before: Sequence[Trajectory]) -> list[Trajectory]:
    """The same after a late fact, a late span and an end that was not known."""
    after = copy.deepcopy(list(before))
    after[0].facts["reward"] = 9.0
    late = copy.deepcopy(after[1].spans[3])
    late.span_id, late.status, late.error = "0123456789abcdef", "OK", None
    late.start_ns += 10**8
    late.end_ns = (after[1].root.end_ns or 0) + 10**9
    after[1].spans.append(late)
    after[0].spans[3].end_ns = after[0].spans[3].start_ns + 5
    after[2].facts["trained_in_step"] = 4
    return after


@contextmanager
def store_class() -> Iterator[None]:
    """As if the installed release had not been compared."""
    known, own_file.COMPARED = own_file.COMPARED, (0, 0)
    try:
        yield
    finally:
        own_file.COMPARED = known


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many spans were written by rows, each time."""
    write, counts = own_file.OwnFile.write, list[int]()

    def counting(self: own_file.OwnFile, experiment: str, deliveries: Sequence[MlflowTrace], run: str | None) -> Any:
        left = write(self, experiment, deliveries, run)
        counts.append(sum(len(delivery.spans) for delivery in deliveries if delivery not in left))
        return left

    own_file.OwnFile.write = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        own_file.OwnFile.write = write  # type: ignore[method-assign]


def deliver(uri: str) -> None:
    """All of it, then the later versions, linked to a run, then the same again in another process's sink."""
    sink = _sink(uri)
    first = rollouts()
    sink.deliver(first)  # has what takes all of MLflow, which a shipper may not have imported before
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.set_experiment(PROJECT)
    with absent("IPython"), mlflow.start_run(run_name="verl") as run:  # the trainer's, who may have it
        pass
    bound = {"run_id": run.info.run_id, "experiment_id": experiment.experiment_id, "tracking_uri": uri}
    sink.bind("mlflow", bound)
    sink.deliver(later(first))
    again = _sink(uri)
    again.bind("mlflow", bound)
    again.deliver(later(first))
    told = {"reward": 3.0, "advantage": 0.5, "ok": True, "why": "late"}
    again.facts([replace(one, spans=[one.root], facts={**one.facts, **told}) for one in first[:2]])


def _sink(uri: str) -> MlflowSink:
    sink = MlflowSink(info(tracking_uri=uri, backends=["mlflow"]), Path("/tmp/run"))
    sink.bind("config", {"project_name": PROJECT})
    return sink


def differences(one: str, other: str) -> list[str]:
    """What is not the same in two databases: rows, and what MLflow's client reads."""
    found: list[str] = []
    rows, other_rows = _rows(one), _rows(other)
    for table in sorted(rows.keys() | other_rows.keys()):
        _compare(table, rows.get(table), other_rows.get(table), found)
    _compare("client", _read(one), _read(other), found)
    return found


def _compare(path: str, one: Any, other: Any, found: list[str]) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys(), key=str):
            _compare(f"{path}.{name}", one.get(name), other.get(name), found)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            _compare(f"{path}[{index}]", *pair, found)
    elif one != other:
        found.append(f"{path}: {one!r:.300} | {other!r:.300}")


def _rows(uri: str) -> dict[str, Any]:
    """Table -> its rows by key, of the tables that are about traces."""
    engine = sqlalchemy.create_engine(uri)
    metadata = sqlalchemy.MetaData()
    metadata.reflect(engine)
    names = {run_id: "the run" for run_id in _values(engine, "SELECT run_uuid FROM runs")}
    names |= {place: "artifacts" for place in _values(engine, "SELECT artifact_location FROM experiments")}
    content: dict[str, Any] = {}
    with engine.connect() as connection:
        for table in metadata.sorted_tables:
            if not table.name.startswith(("trace", "span", "assessment", "entity", "sql_trace", "sql_span")):
                continue
            for row in connection.execute(table.select()).mappings():
                values = {name: _named(value, names) for name, value in row.items() if name not in OWN}
                key = "/".join(str(values[column.name]) for column in table.primary_key)
                content.setdefault(table.name, {})[key] = values
    engine.dispose()
    return content


def _values(engine: Any, query: str) -> list[str]:
    with engine.connect() as connection:
        return [str(value) for value in connection.execute(sqlalchemy.text(query)).scalars() if value]


def _named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str) and len(value) < 1000:
        for name, word in names.items():
            value = value.replace(name, word)
    return value


def _read(uri: str) -> dict[str, Any]:
    """What the client shows, by trace id and by query."""
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient()
    experiment = mlflow.get_experiment_by_name(PROJECT)
    (run,) = client.search_runs([experiment.experiment_id])
    place = {run.info.run_id: "the run", experiment.artifact_location: "artifacts"}
    shown: dict[str, Any] = {}
    every = _search(experiment.experiment_id)
    for trace in every:
        told = json.loads(json.dumps(client.get_trace(trace.info.trace_id).to_dict(), default=str))
        for part in ("trace_metadata", "request_metadata", "tags"):
            told["info"][part] = {name: _named(value, place) for name, value in told["info"].get(part, {}).items()}
        shown[trace.info.trace_id] = told | {"usage": trace.info.token_usage}
    for query in QUERIES:
        try:
            shown[query] = sorted(trace.info.trace_id for trace in _search(experiment.experiment_id, query))
        except Exception as error:  # older releases know fewer words
            shown[query] = type(error).__name__
    linked = _search(experiment.experiment_id, run_id=run.info.run_id)
    return shown | {"of the run": sorted(trace.info.trace_id for trace in linked)}


def _search(experiment_id: str, query: str | None = None, **more: Any) -> list[Any]:
    return list(
        mlflow.search_traces(
            locations=[experiment_id], filter_string=query, return_type="list", max_results=500, **more
        )
    )


if __name__ == "__main__":
    with counted() as spans:
        deliver(sys.argv[1])
    libraries = [name for name in LIBRARIES if name in sys.modules]
    with store_class():
        deliver(sys.argv[2])
    found = differences(*sys.argv[1:3])
    result = {"mlflow": mlflow.__version__, "spans": spans, "differences": found, "libraries": libraries}
    print(json.dumps(result))
