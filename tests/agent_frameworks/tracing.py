"""A program on a framework, run under ``autotrace-run`` with the framework's own Python, and what it recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from autotrace.ship.readers import of_run
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.server import TEXT, serving
from tests.folders import contents
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
TIMEOUT = 840 if "AUTOTRACE_TEST_AGENTS" in os.environ else DEADLINE
"""Seconds for a program. Those that train import for a minute, for several on a machine that does something else."""
Serving = Callable[[], AbstractContextManager[str]]
SPEC = """
- target: tests.agent_frameworks.{framework}.program.Agent.solve
  role: trajectory
  attributes: {{sample_index: way, step: number}}
- target: tests.agent_frameworks.{framework}.program.Toolbox.call_tool
  role: tool
"""
"""Of a program whose agent solves its task in several ways."""


def python_of(framework: str) -> str:
    """The interpreter that has ``framework``: of the environments of ``make agents``, else this one."""
    environments = os.environ.get("AUTOTRACE_TEST_AGENTS")
    return str(Path(environments, framework, "bin", "python")) if environments else sys.executable


def run_bare(framework: str, folder: Path, module: str, serving: Serving = serving) -> list[str]:
    """The lines that ``module`` of ``framework`` prints without tracing."""
    with serving() as url:
        done = _run([python_of(framework), "-m", f"tests.agent_frameworks.{framework}.{module}", url], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_program(
    framework: str, folder: Path, spec: str = "", module: str = "program", serving: Serving = serving
) -> tuple[Path, list[str]]:
    """The run folder of ``module`` of ``framework``, traced with ``spec`` and given the URL of the stand-in for a
    model server (``.../v1``); and the lines that it printed."""
    python = python_of(framework)
    command = [python, "-m", "autotrace.launch.main", "--backend", "jsonl"]
    if spec:
        (folder / "traced.yaml").write_text(spec)
        command += ["--spec", "traced.yaml"]
    with serving() as url:
        done = _run([*command, python, "-m", f"tests.agent_frameworks.{framework}.{module}", url], folder)
    assert done.returncode == 0, done.stderr
    (run,) = folder.rglob("run.json")
    return run.parent, done.stdout.splitlines()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "OPENAI"))}
    environ["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def trajectories_of(run: Path) -> list[Trajectory]:
    """Everything that was recorded, in the order in which it began. A call of no trajectory is one of its own."""
    reader = of_run(run)
    return [reader.load(row.trace_id) for row in reader.select(roots=True)]


def run_ways(framework: str, folder: Path, ways: Iterable[str]) -> Path:
    """The run folder of a program that prints for each of ``ways`` what its agent answered."""
    run, printed = run_program(framework, folder, SPEC.format(framework=framework))
    answers = [line for line in printed if line.endswith(TEXT)]
    assert answers == [f"{way} {TEXT}" for way in ways], "the program noticed"
    assert not any(b"sk-secret" in text for text in contents(run).values())
    return run


def by_way(run: Path) -> dict[str, Trajectory]:
    """The trajectories of such a program by the way in which the model was asked; there is nothing else."""
    trajectories = trajectories_of(run)
    assert {one.root.role for one in trajectories} == {"trajectory"}, "a call outside of a trajectory was recorded"
    ways = {str(one.root.attributes["sample_index"]): one for one in trajectories}
    assert len(ways) == len(trajectories)
    return ways


def rollouts_of(framework: str, folder: Path, module: str = "program") -> tuple[list[dict[str, Any]], list[Trajectory]]:
    """What a program printed of each rollout, as a line of JSON, and the trajectories in the order in which they
    began."""
    run, printed = run_program(framework, folder, module=module)
    rows = [json.loads(line) for line in printed if line.startswith("{")]
    return rows, [one for one in trajectories_of(run) if one.root.role == "trajectory"]


def by_rollout(framework: str, folder: Path) -> list[tuple[dict[str, Any], Trajectory]]:
    """``rollouts_of``, each line with the trajectory that has its ``uid`` and ``rollout_n``."""
    rows, rollouts = rollouts_of(framework, folder)
    by_name = {(one.attributes["uid"], one.attributes["rollout_n"]): one for one in rollouts}
    assert len(rows) == len(rollouts) == len(by_name)
    return [(row, by_name[str(row["uid"]), row["rollout_n"]]) for row in rows]
