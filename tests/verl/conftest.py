"""Processes of real in-process veRL under ``autotrace-run``, all into one MLflow store and under one name."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from programs import Program

if importlib.util.find_spec("verl") is None:  # `make e2e` makes the environment that has it
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str | None:
    """Say why nothing is collected here in an environment without veRL."""
    return "tests/verl: needs veRL" if "collect_ignore_glob" in globals() else None


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Program]]:
    """``classic`` beside ``own_loop``. Where a test marked ``long`` runs: then ``v1`` beside ``resumed`` (the first
    once more), then ``killed``."""
    is_long = any(item.get_closest_marker("long") for item in request.session.items if "programs" in item.fixturenames)
    folder = tmp_path_factory.mktemp("verl")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    modes = {"classic": "classic", "own_loop": "own_loop"}
    if is_long:
        modes |= {"v1": "v1", "resumed": "classic", "killed": "hang"}
    made = {name: Program(mode, name, folder / name, uri) for name, mode in modes.items()}
    try:
        for pair in (("classic", "own_loop"), *([("v1", "resumed")] if is_long else [])):
            for name in pair:
                made[name].start()
            for name in pair:
                made[name].wait()
        if is_long:
            made["killed"].start().kill_in_tool()
        yield made
    finally:
        for program in made.values():
            if program.process is not None and program.process.poll() is None:
                program.process.kill()


@pytest.fixture(scope="session")
def traces(programs: dict[str, Program]) -> dict[str, list[Any]]:
    """Name of the program -> its trajectories, read back through MLflow's public API."""
    import mlflow

    mlflow.set_tracking_uri(programs["classic"].uri)
    experiment = mlflow.get_experiment_by_name("in-process")
    found = mlflow.search_traces(locations=[experiment.experiment_id], return_type="list", max_results=1000)
    names = {program.run_id: name for name, program in programs.items()}
    by_name: dict[str, list[Any]] = {name: [] for name in programs}
    for trace in found:
        if trace.info.tags["role"] == "trajectory":
            by_name[names[trace.info.tags["run_id"]]].append(trace)
    return by_name
