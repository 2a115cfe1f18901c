"""One run of ``run_ppo.sh`` and what it left behind: exit code, veRL's dump, what the engine saw, traces in MLflow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
LIMIT = 900
"""Seconds after which a run is taken for hung."""
PROJECT = "autotrace-e2e"
FUNCTION_TOOL = f"actor_rollout_ref.rollout.multi_turn.function_tool_path={HERE / 'function_tool.py'}"
BASE_TOOL = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={HERE / 'add_tool.yaml'}"


@dataclass
class Call:
    """One request as the engine saw it (written by the test's own vLLM plugin, see ``shim/verl_cpu_vllm.py``)."""

    request_id: str
    prompt_ids: list[int]
    output_ids: list[int]


@dataclass
class MainPPO:
    """``start`` it, ``wait`` for it, then read."""

    name: str
    folder: Path
    overrides: Sequence[str]
    traced: bool = True
    returncode: int | None = None
    seconds: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None
    _started: float = 0.0
    _ray: str = field(default="")

    @property
    def tracking_uri(self) -> str:
        """A store of the run's own: veRL's logger and autotrace both find it in the environment."""
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def start(self) -> MainPPO:
        """Start the run in its own process group, with a Ray of its own."""
        for name in ("engine", "dump"):
            (self.folder / name).mkdir(parents=True)
        self._ray = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the paths of Ray's sockets must be short
        launch = f"autotrace-run --run-dir {self.folder / 'runs'} --drain-timeout 120" if self.traced else ""
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")},
            "VENV": sys.prefix,
            "LAUNCH": launch,
            "E2E_ENGINE_LOG": str(self.folder / "engine"),
            "MLFLOW_TRACKING_URI": self.tracking_uri,
        }
        overrides = [
            *self.overrides,
            "trainer.logger=[console,mlflow]",
            f"trainer.project_name={PROJECT}",
            f"trainer.experiment_name={self.name}",
            f"trainer.rollout_data_dir={self.folder / 'dump'}",
            f"+ray_kwargs.ray_init._temp_dir={self._ray}",
        ]
        self._log = (self.folder / "log").open("wb")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [str(HERE / "run_ppo.sh"), *overrides],
            cwd=self.folder, env=environ, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return self

    def wait(self, tries: int = 2) -> MainPPO:
        """Wait for the end; the last lines of the log are shown when it was not a good one. Ray gives its own processes
        30 s to start, whatever the machine does beside: a run for which that was not enough is started again."""
        assert self._process is not None and self._log is not None
        try:
            self.returncode = self._process.wait(LIMIT)
        finally:
            self.seconds = time.monotonic() - self._started
            self.stop()
        if self.returncode and tries > 1 and "timed out during startup" in self.log:
            shutil.rmtree(self.folder)
            return self.start().wait(tries - 1)
        if self.returncode:
            print(f"--- {self.name}: exit code {self.returncode}\n" + "\n".join(self.log.splitlines()[-80:]))
        return self

    def stop(self) -> None:
        """End what is left of the run."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, 15)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self._ray, ignore_errors=True)

    @property
    def log(self) -> str:
        """What the run printed."""
        return (self.folder / "log").read_text(errors="replace")

    @cached_property
    def dump(self) -> list[dict[str, Any]]:
        """Rows of veRL's own rollout dump of step 1."""
        return [json.loads(line) for line in (self.folder / "dump" / "1.jsonl").read_text().splitlines()]

    @cached_property
    def engine_calls(self) -> list[Call]:
        """What the engine was asked and what it answered."""
        logs = sorted((self.folder / "engine").glob("*.jsonl"))
        return [Call(**json.loads(line)) for log in logs for line in log.read_text().splitlines()]

    @cached_property
    def traces(self) -> list[Any]:
        """The run's trajectories, read back through MLflow's public API."""
        import mlflow

        mlflow.set_tracking_uri(self.tracking_uri)
        experiment = mlflow.get_experiment_by_name(PROJECT)
        assert experiment is not None, f"no MLflow experiment {PROJECT}"
        return list(mlflow.search_traces(locations=[experiment.experiment_id], return_type="list"))

    def recorded(self) -> list[Any]:
        """The trajectories in the run folder."""
        import autotrace

        (folder,) = (self.folder / "runs").glob("*/run.json")
        return [one for one in autotrace.open(folder.parent).trajectories() if one.root.role == "trajectory"]

    def step_facts(self) -> dict[int, dict[str, dict[str, float]]]:
        """Step -> what the trainer logged of it, and what follows from its rows."""
        from autotrace.ship.readers import of_run

        (folder,) = (self.folder / "runs").glob("*/run.json")
        with contextlib.closing(of_run(folder.parent)) as reader:
            return reader.run.step_facts()

    def search(self, **query: Any) -> list[Any]:
        """``mlflow.search_traces`` in the run's experiment."""
        import mlflow

        mlflow.set_tracking_uri(self.tracking_uri)
        experiment = mlflow.get_experiment_by_name(PROJECT)
        return list(mlflow.search_traces(locations=[experiment.experiment_id], return_type="list", **query))
