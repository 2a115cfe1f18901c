"""One traced run of the agent, in each of its ways, read back from its run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.ship.run_reader import RunReader
from autotrace.trajectory.model import Trajectory
from tests.agents.openai_agent import WAYS
from tests.agents.server import serving

ROOT = Path(__file__).parents[2]
SPEC = """
- target: tests.agents.openai_agent.Agent.solve
  role: trajectory
  attributes: {sample_index: way, step: number}
- target: tests.agents.openai_agent.Toolbox.call_tool
  role: tool
"""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of one run of ``openai_agent``."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "traced.yaml").write_text(SPEC)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    environ |= {"PYTHONPATH": str(ROOT), "AUTOTRACE_DIR": str(folder)}
    launch = [sys.executable, "-m", "autotrace.launch.main", "--spec", "traced.yaml", "--backend", "jsonl"]
    with serving() as url:
        done = subprocess.run(
            [*launch, sys.executable, "-m", "tests.agents.openai_agent", url],
            cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{way} It is 4." for way in WAYS], "the program noticed"
    return next(path.parent for path in folder.rglob("run.json"))


@pytest.fixture(scope="session")
def trajectories(run: Path) -> dict[str, Trajectory]:
    """The trajectories by the way the model was asked."""
    reader = RunReader.open(run)
    rows = reader.rows(role="trajectory")
    loaded = {str(row.sample_index): reader.load(row.trace_id) for row in rows}
    assert len(loaded) == len(rows) == len(reader.rows()), "a call outside of a trajectory was recorded"
    return loaded
