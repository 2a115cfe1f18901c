"""Runs of ``program.py`` under ``autotrace-run``, and what each left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autotrace.ship.readers import of_run
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import Trajectory

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASES = Path(os.environ.get("VERL_RELEASES") or ROOT / ".packs-cache" / "unpacked")
"""Unpacked wheels of older releases: ``0.7.1/verl/...``."""
ABOUT = {"0.7.1": "v0", "0.8.0": "v0", "V1": "v1"}
"""What the table is about: the classic path of two older releases, and the default path of the installed one."""
PATHS = {name: ABOUT[name] for name in os.environ.get("VERL_TABLE", ",".join(ABOUT)).split(",")}
"""The same, or the part of it that ``VERL_TABLE=V1`` names."""
CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4n4ryc4n4"
"""Every key of the runs: W&B's, MLflow's, the tool's own. W&B's client wants 40 characters."""
LIMIT = 500
"""Seconds after which a run is taken for hung."""
EXPERIMENT = "grpo-a"
WANDB_FOLDER = "wandb-of-verl"
SAMPLES = 5
"""``max_samples_per_step_per_worker`` of all runs."""
LOGGERS = {
    "weave": {"V1": ["wandb"], "0.8.0": ["mlflow"], "0.7.1": []},
    "mlflow": {"V1": [], "0.8.0": ["wandb"], "0.7.1": ["mlflow"]},
}
"""Trace backend -> veRL's loggers beside it: every combination once."""


def weave_variables(url: str) -> dict[str, str]:
    """The environment of somebody who is logged in to the server at ``url``."""
    return {"WANDB_BASE_URL": url, "WF_TRACE_SERVER_URL": url}


@dataclass
class Launch:
    """One run. ``flags`` are autotrace's, ``overrides`` veRL's."""

    name: str
    release: str
    folder: Path
    flags: Sequence[str] = ()
    overrides: Sequence[str] = ()
    logger: Sequence[str] = ("console",)
    variables: Mapping[str, str] = field(default_factory=dict)
    n: int = 4
    workers: int = 4
    prompts: int = 30
    steps: int = 1
    gate: Path | None = None
    process: Any = None

    @property
    def project(self) -> str:
        """``trainer.project_name``."""
        return f"table-{self.name}"

    def start(self) -> Launch:
        """Start it."""
        self.folder.mkdir(parents=True)
        settings = {
            "path": PATHS[self.release], "n": self.n, "workers": self.workers, "prompts": self.prompts,
            "steps": self.steps, "logger": list(self.logger), "project": self.project, "experiment": EXPERIMENT,
            "overrides": list(self.overrides), "gate": str(self.gate) if self.gate else None,
        }  # fmt: skip
        (self.folder / "settings.json").write_text(json.dumps(settings))
        launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(self.folder / "runs")]
        launch += ["--drain-timeout", "240", "--spec", str(HERE / "traced.yaml"), *self.flags]
        program = [str(HERE / "program.py"), str(self.folder / "settings.json"), str(self.folder / "out.json")]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*launch, sys.executable, *program],
                env=self._environment(), cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return self

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
        older = [] if PATHS[self.release] == "v1" else [str(RELEASES / self.release)]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([*older, str(ROOT)]),
            "CANARY": CANARY,
            "WANDB_API_KEY": CANARY,
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(self.folder / WANDB_FOLDER),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "HOME": str(self.folder),
            **self.variables,
        }

    def wait(self) -> Launch:
        """Wait for a good end."""
        code = self.process.wait(LIMIT)
        assert code == 0, f"{self.name}: {self.log[-4000:]}"
        return self

    @property
    def log(self) -> str:
        """What was printed."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def run(self) -> Path:
        """The run folder."""
        (found,) = (self.folder / "runs").glob("*/run.json")
        return found.parent

    @cached_property
    def truth(self) -> dict[str, Any]:
        """What the program wrote down."""
        told: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return told

    @cached_property
    def index(self) -> Reader:
        """What was recorded."""
        return of_run(self.run)

    @cached_property
    def recorded(self) -> dict[str, Trajectory]:
        """The trajectories in the run folder, by trace id."""
        rows = [row for row in self.index.select(roots=True) if row.role == "trajectory"]
        return {row.trace_id: self.index.load(row.trace_id) for row in rows}

    def status(self) -> dict[str, Any]:
        """The shipper's last word; empty before its first."""
        found = list((self.folder / "runs").glob("*/status.json"))
        return json.loads(found[0].read_text()) if found else {}


def together(launches: Sequence[Launch]) -> None:
    """Run all, two at a time: each is a chain of imports that leaves half of two cores idle."""
    waiting, running = list(launches), []
    while waiting or running:
        while waiting and len(running) < 2:
            running.append(waiting.pop(0).start())
        running.pop(0).wait()


def autotrace(launch: Launch, *words: str) -> str:
    """What a command of autotrace's prints."""
    command = [sys.executable, "-m", "autotrace.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=launch.folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
