"""A program on a framework, run under ``autotrace-run`` with the framework's own Python, and what it recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from autotrace.ship.run_reader import RunReader
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.server import serving

ROOT = Path(__file__).parents[2]
TIMEOUT = 280


def python_of(framework: str) -> str:
    """The interpreter that has ``framework``: of the environments of ``make agents``, else this one."""
    environments = os.environ.get("AUTOTRACE_TEST_AGENTS")
    return str(Path(environments, framework, "bin", "python")) if environments else sys.executable


def run_program(framework: str, folder: Path, spec: str = "") -> tuple[Path, list[str]]:
    """The run folder of ``program.py`` of ``framework``, traced with ``spec`` and given the URL of the stand-in for a
    model server (``.../v1``); and the lines that it printed."""
    python = python_of(framework)
    command = [python, "-m", "autotrace.launch.main", "--backend", "jsonl"]
    if spec:
        (folder / "traced.yaml").write_text(spec)
        command += ["--spec", "traced.yaml"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "OPENAI"))}
    environ |= {"PYTHONPATH": str(ROOT), "AUTOTRACE_DIR": str(folder)}
    with serving() as url:
        done = subprocess.run(
            [*command, python, "-m", f"tests.agent_frameworks.{framework}.program", url],
            cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = folder.rglob("run.json")
    return run.parent, done.stdout.splitlines()


def trajectories_of(run: Path) -> list[Trajectory]:
    """Everything that was recorded, in the order in which it began. A call of no trajectory is one of its own."""
    reader = RunReader.open(run)
    return [reader.load(row.trace_id) for row in reader.rows()]
