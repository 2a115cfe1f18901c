"""The spools that are delivered again and again, and the servers they go to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from autotrace.run.info import RunInfo
from tests.mlflow_server import MlflowServer
from tests.postgres import Postgres

ROOT = Path(__file__).resolve().parent.parent
TURNS, MANY_TURNS = 20, 80
PROMPT, RESPONSE, TOOL = 1_000, 256, 32
"""Tokens: of the first prompt, of each response, of each tool's answer."""

SERVERS: dict[str, Callable[[Path], MlflowServer | Postgres]] = {
    "mlflow server": MlflowServer,
    "mlflow postgresql": lambda _: Postgres(),
}
"""What has to run for a row of ``delivery``, made in a folder."""


def spans(trajectories: int, turns: int = TURNS) -> int:
    """How many spans they have: the agent's loop, and of each turn the call of the model and that of the tool."""
    return trajectories * (1 + 2 * turns)


def uri(server: MlflowServer | Postgres | None, folder: str) -> str:
    """MLflow's tracking URI; ``server`` None: an SQLite file in ``folder``. Makes PostgreSQL's database: once."""
    if isinstance(server, Postgres):
        return server.uri("bench")
    return f"sqlite:///{folder}/mlflow.db" if server is None else server.url


class Spools:
    """Spools of each shape, recorded when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, int], Path] = {}

    def copy(self, to: Path, backend: str, tracking_uri: str, trajectories: int, turns: int) -> Path:
        """A run folder at ``to`` that nothing was delivered from."""
        made = self._made.get((trajectories, turns))
        if made is None:
            made = self._made[trajectories, turns] = self._folder / f"spool-{trajectories}-{turns}"
            made.mkdir(mode=0o700)
            sizes = [trajectories, turns, PROMPT, RESPONSE, TOOL]
            command = [sys.executable, "-m", "benchmarks.spool_program", str(made), *map(str, sizes)]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
                           stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)  # fmt: skip
        shutil.copytree(made, to)
        info = RunInfo.read(to)
        info.backends, info.run_id = [backend], "bench"
        info.project = "dev/bench" if backend == "weave" else "bench"
        info.tracking_uri = tracking_uri if backend == "mlflow" else None
        info.write(to)
        return to
