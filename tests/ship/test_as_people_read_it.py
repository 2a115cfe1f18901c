"""What stands in lists of traces: one number of tokens everywhere, previews without markup, batches that say which."""

from __future__ import annotations

import os
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner
from mlflow.entities import Trace
from opentelemetry.sdk.resources import Resource

from autotrace.cli.main import main
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks.mlflow.uri import initialise
from autotrace.sinks.otlp.spans import otel_span
from autotrace.sinks.weave.calls import WeaveCalls
from tests.cases import some
from tests.mlflow_server import MlflowServer
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run

READ, WRITTEN = len(PROMPT) + len(PROMPT + ANSWER + TOOL), len(ANSWER + FINAL)


def rollout(process: Process) -> bytes:
    """Two turns, each served by a traced engine, and a tool that asks a model of its own."""
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(step=3))
    first = process.open(trace, "llm", root, PROMPT)
    request = process.open(trace, "engine", first, PROMPT)
    process.close(trace, request, ANSWER)
    process.close(trace, first, ANSWER)
    tool = process.open(trace, "tool", root, inputs={"name": "judge", "arguments": {}})
    judge = process.open(trace, "llm", tool, [7] * 100)
    process.close(trace, judge, [8] * 50)
    process.close(trace, tool, output="fine")
    second = process.open(trace, "llm", root, PROMPT + ANSWER + TOOL)
    process.close(trace, second, FINAL)
    process.close(trace, root)
    return trace


@pytest.fixture(scope="module", params=some(("database", "server"), "database"))
def delivered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Trace]]:
    """A run with one rollout and the batch that it was of, and what MLflow has of it."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "server":
        server = MlflowServer(folder)
        request.addfinalizer(server.stop)
        server.start()
        uri = server.url
    else:
        uri = f"sqlite:///{folder}/mlflow.db"
        initialise(uri)
    run = new_run(folder, backends=["mlflow"], tracking_uri=uri)
    process = Process(run)
    rollout(process)
    batch = os.urandom(16)
    process.close(batch, process.open(batch, "trainer", attributes={"step": 3, "validate": True}))
    process.exit()
    assert ship(run, once=True).state == "done"
    mlflow.set_tracking_uri(uri)
    experiments = [experiment.experiment_id for experiment in mlflow.search_experiments()]
    found = mlflow.search_traces(locations=experiments, return_type="list")
    return run, {trace.info.tags["role"]: trace for trace in found}


def test_a_trajectory_has_one_number_of_tokens(delivered: tuple[Path, dict[str, Trace]]) -> None:
    run, found = delivered
    usage = found["trajectory"].info.token_usage
    assert usage == {"input_tokens": READ, "output_tokens": WRITTEN, "total_tokens": READ + WRITTEN}
    listed = CliRunner().invoke(main, ["ls", str(run)], catch_exceptions=False).output.splitlines()
    trace_id = found["trajectory"].info.trace_id.removeprefix("tr-")
    header = next(line for line in listed if "tokens" in line)
    line = next(line for line in listed if trace_id[:12] in line)
    assert line[: header.index("tokens") + len("tokens")].split()[-1] == str(READ + WRITTEN)
    trajectory = of_run(run).load(trace_id)
    (said,) = WeaveCalls(trajectory, "entity/project", None).of(trajectory.root)["summary"]["usage"].values()
    assert said["total_tokens"] == READ + WRITTEN
    turns = [dict(otel_span(trajectory, span, Resource({})).attributes or {}) for span in trajectory.llm_spans]
    assert sum(int(str(turn["gen_ai.usage.input_tokens"])) for turn in turns) == READ  # OTLP has no total
    tree = CliRunner().invoke(main, ["ls", str(run), "--tree"], catch_exceptions=False).output
    assert f"turn 1  {len(PROMPT)} + {len(ANSWER)} tokens" in tree


def test_a_batch_says_which_and_is_no_row_of_braces(delivered: tuple[Path, dict[str, Trace]]) -> None:
    _, found = delivered
    batch = found["trainer"].info
    assert batch.request_preview == "step 3, validation" and batch.response_preview in (None, "")
