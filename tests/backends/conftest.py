"""Real veRL on three releases into the real backends: the runs of the table, made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from launches import CANARY, LOGGERS, PATHS, RELEASES, SAMPLES, Launch, together, weave_variables
from proxy import Proxy
from read import ReadBack

from autotrace.sinks.mlflow.uri import initialise
from tests.mlflow_server import MlflowServer
from tests.weave_server.conftest import CLIENT, weave_url  # noqa: F401

HERE = Path(__file__).resolve().parent
TRACE = "actor_rollout_ref.rollout.trace"


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A running tracking server."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow-server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mlflow_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An SQLite store."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow-store') / 'mlflow.db'}"
    initialise(uri)
    return uri


@pytest.fixture(scope="session")
def weave_proxy(weave_url: str) -> Proxy:  # noqa: F811
    """W&B's server behind something that counts bytes."""
    return Proxy(weave_url)


@pytest.fixture(scope="session")
def read_back(weave_url: str, tmp_path_factory: pytest.TempPathFactory) -> ReadBack:  # noqa: F811
    """``read_back("dev/rl", name={...arguments of get_calls...})`` through W&B's client."""
    home = tmp_path_factory.mktemp("client")

    def read(project: str, **queries: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        environ = {
            **os.environ, **weave_variables(weave_url), "WANDB_API_KEY": CANARY, "HOME": str(home), "PYTHONPATH": "",
            # the client's cache is one per machine and does not know which server it is about
            "WEAVE_USE_SERVER_CACHE": "false", "WANDB_ERROR_REPORTING": "false",
        }  # fmt: skip
        command = [str(CLIENT / "bin/python"), str(HERE.parent / "weave_server" / "read_back.py"), project]
        done = subprocess.run(command, input=json.dumps(queries), capture_output=True, text=True, env=environ)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
        return found

    return read


@pytest.fixture(scope="session")
def releases() -> None:
    """The older releases are there."""
    missing = [name for name, path in PATHS.items() if path == "v0" and not (RELEASES / name / "verl").exists()]
    assert not missing, f"no veRL {', '.join(missing)} in {RELEASES}: `make test-backends` unpacks them"


@pytest.fixture(scope="session")
def runs(
    releases: None,
    mlflow_server: MlflowServer,
    mlflow_sqlite: str,
    weave_url: str,  # noqa: F811
    weave_proxy: Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], Launch]:
    """(release, kind) -> a finished run, of three kinds.

    ``both``: autotrace's own flags, over veRL's switches that say otherwise. ``weave`` and ``mlflow``: no flag but a
    budget of half of what ``both`` sent; veRL's switches choose the backend and the sampling.
    """
    folder = tmp_path_factory.mktemp("runs")
    stores = {"V1": mlflow_server.url, "0.8.0": mlflow_sqlite, "0.7.1": mlflow_server.url}
    others = {"V1": mlflow_sqlite, "0.8.0": mlflow_server.url, "0.7.1": mlflow_sqlite}
    sampled = f"{TRACE}.max_samples_per_step_per_worker={SAMPLES}"
    made: dict[tuple[str, str], Launch] = {}
    for release in PATHS:
        flags = ["--backend", "mlflow,weave", "--max-samples-per-step-per-worker", str(SAMPLES)]
        made[release, "both"] = Launch(
            f"both-{release}", release, folder / f"both-{release}", flags,
            [f"{TRACE}.backend=weave", f"{TRACE}.max_samples_per_step_per_worker={SAMPLES - 2}"],
            ["console", "mlflow", "wandb"],
            {**weave_variables(weave_url), "MLFLOW_TRACKING_URI": stores[release]},
        )  # fmt: skip
    together(list(made.values()))
    frugal: dict[tuple[str, str], Launch] = {}
    for kind in ("weave", "mlflow"):
        for release in PATHS:
            sent = {name: told["sent_bytes"] for name, told in made[release, "both"].status()["backends"].items()}
            switches = [f"{TRACE}.backend={kind}", f"{TRACE}.token2text=True", sampled]
            if release == "0.7.1" and kind == "weave":  # the oldest spelling, which veRL itself reads no more
                switches = [f"+trainer.rollout_trace.{word.removeprefix(TRACE + '.')}" for word in switches]
            frugal[release, kind] = Launch(
                f"{kind}-{release}", release, folder / f"{kind}-{release}",
                ["--step-budget", str(sent[kind] // 2)],
                switches,
                ["console", *LOGGERS[kind][release]],
                {**weave_variables(weave_proxy.url), "MLFLOW_TRACKING_URI": others[release]},
            )  # fmt: skip
    together(list(frugal.values()))
    return made | frugal


@pytest.fixture(params=list(PATHS))
def release(request: pytest.FixtureRequest) -> str:
    """The veRL release, ``V1`` for the default path of the installed one."""
    return str(request.param)


@pytest.fixture
def both(runs: dict[tuple[str, str], Launch], release: str) -> Launch:
    """The release's run into both backends."""
    return runs[release, "both"]
