"""The trace context crosses actor calls and tasks of a real Ray, and nothing breaks where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotrace.adapters.ray import actors
from autotrace.adapters.ray import cluster as adapter
from autotrace.run import layout
from autotrace.run.info import find_runs
from autotrace.spool.records import Define, Open, Record, Report
from autotrace.spool.segment import read_frames
from tests.cases import some
from tests.waiting import DEADLINE

PROGRAM = Path(__file__).parent / "ray_program"
ROOT = Path(__file__).parents[2]
CARRIED = ("sync", "async", "threaded", "relay", "task")


def records(folder: Path) -> list[list[Any]]:
    """All records of a run, a list per process."""
    found = []
    for segment in sorted((find_runs(folder)[0][-1] / layout.SPOOL).iterdir()):
        fd = os.open(segment, os.O_RDONLY)
        found.append([msgspec.msgpack.decode(frame.payload, type=Record) for frame in read_frames(fd)])
        os.close(fd)
    return found


def spans(folder: Path) -> list[tuple[str, str, Open]]:
    """``(what was called, its argument "name", record)`` of every call."""
    calls = []
    for process in records(folder):
        names = {record.id: record.name for record in process if isinstance(record, Define)}
        calls += [(names[r.target], r.inputs["name"], r) for r in process if isinstance(r, Open)]
    return calls


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program under the launcher; its records stay in ``folder``."""
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", "jsonl", "--drain-timeout", "0"]
    options = ["--quiet", "--keep-spool", "1", "--run-dir", str(folder), "--spec", str(PROGRAM / "spec.yaml")]
    environ = {**os.environ, "PYTHONPATH": f"{PROGRAM}:{ROOT}", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    environ.pop("AUTOTRACE", None)
    return subprocess.run(
        [*launcher, *options, sys.executable, str(PROGRAM / "program.py"), *arguments],
        env=environ, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip


@pytest.fixture(scope="module", params=some(["plain", "otel"], "plain"))
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program's run, once as it is and once with Ray's own OpenTelemetry tracing on."""
    folder = tmp_path_factory.mktemp("ray")
    done = run(folder, request.param)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all answers right" in done.stdout
    return folder


@pytest.fixture(scope="module")
def calls(ran: Path) -> list[tuple[str, str, Open]]:
    return spans(ran)


@pytest.mark.parametrize("kind", CARRIED)
def test_a_call_in_another_process_is_a_child_of_the_caller(calls: list[tuple[str, str, Open]], kind: str) -> None:
    outer = {name: record for what, name, record in calls if what == "outer"}
    leaves = {name: record for what, name, record in calls if what == "leaf"}
    for number in range(4):
        caller, called = outer[f"{kind} {number}"], leaves[f"{kind} {number}"]
        assert (called.trace, called.parent) == (caller.trace, caller.span)


@pytest.mark.parametrize("kind", [*CARRIED, "generator"])
def test_a_call_outside_of_any_span_starts_a_trace_of_its_own(calls: list[tuple[str, str, Open]], kind: str) -> None:
    leaves = {name: record for what, name, record in calls if what == "leaf"}
    assert leaves[f"{kind} outside"].parent == 0
    assert leaves[f"{kind} after"].parent == 0, "the context of an earlier call stayed behind in the worker"


@pytest.mark.long
def test_a_worker_without_autotrace_works_as_ever(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "autotrace").mkdir(parents=True)
    (hidden / "autotrace" / "__init__.py").write_text("raise ImportError('autotrace is not installed here')\n")
    done = run(tmp_path / "runs", "blocked", f"{hidden}:{PROGRAM}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all answers right" in done.stdout
    assert {what for what, _, _ in spans(tmp_path / "runs")} == {"outer"}


def test_what_bound_is_reported_by_the_workers_too(ran: Path) -> None:
    bound = [{r.name for r in process if isinstance(r, Report)} for process in records(ran)]
    assert sum("work:leaf" in names for names in bound) >= 4


ENVIRON = {"AUTOTRACE": "1", "AUTOTRACE_RUN_ID": "r", "HOME": "/home/me", "MLFLOW_DISABLE_TELEMETRY": "true"}
OURS = {"AUTOTRACE": "1", "AUTOTRACE_RUN_ID": "r", "MLFLOW_DISABLE_TELEMETRY": "true"}


class TestVariables:
    """What ``ray.init`` is given."""

    def test_are_ours_alone(self) -> None:
        assert adapter.with_variables(None, ENVIRON) == {"env_vars": OURS}

    def test_never_replace_what_the_user_gave(self) -> None:
        given = {"env_vars": {"AUTOTRACE": "0", "A": "1"}, "working_dir": "."}
        merged = adapter.with_variables(given, ENVIRON)
        assert merged == {"env_vars": {**OURS, "AUTOTRACE": "0", "A": "1"}, "working_dir": "."}
        assert given == {"env_vars": {"AUTOTRACE": "0", "A": "1"}, "working_dir": "."}

    def test_leave_out_what_the_submitted_job_has(self) -> None:
        job = '{"runtime_env": {"env_vars": {"AUTOTRACE": "1", "AUTOTRACE_RUN_ID": "r"}}}'
        environ = {**ENVIRON, "RAY_JOB_CONFIG_JSON_ENV_VAR": job}
        assert adapter.with_variables(None, environ) == {"env_vars": {"MLFLOW_DISABLE_TELEMETRY": "true"}}

    def test_go_into_a_runtime_env_object(self) -> None:
        from ray.runtime_env import RuntimeEnv

        merged = adapter.with_variables(RuntimeEnv(env_vars={"A": "1"}), ENVIRON)
        assert isinstance(merged, RuntimeEnv)
        assert merged["env_vars"] == {**OURS, "A": "1"}


def test_ours_and_rays_context_travel_together() -> None:
    carrier = bytes(range(26))
    kwargs = {"x": 1, actors.KEYWORD: {"traceparent": "00-1-2-01", actors.OURS: carrier.hex()}}
    assert actors.unpacked(kwargs) == carrier
    assert kwargs == {"x": 1, actors.KEYWORD: {"traceparent": "00-1-2-01"}}
    kwargs = {actors.KEYWORD: {actors.OURS: carrier.hex()}}
    assert actors.unpacked(kwargs) == carrier
    assert kwargs == {}


@pytest.mark.parametrize("strange", [None, "text", {}, {"traceparent": "x"}])
def test_a_call_without_our_context_is_left_alone(strange: Any) -> None:
    kwargs = {actors.KEYWORD: strange}
    assert actors.unpacked(kwargs) is None
    assert kwargs == {actors.KEYWORD: strange}
