"""One traced run of the agent, in each of its ways, read back from its run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.anthropic.program import WAYS
from tests.agent_frameworks.tracing import run_program, trajectories_of

SPEC = """
- target: tests.agent_frameworks.anthropic.program.Agent.solve
  role: trajectory
  attributes: {sample_index: way, step: number}
- target: tests.agent_frameworks.anthropic.program.Toolbox.call_tool
  role: tool
"""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of one run of the program."""
    run, printed = run_program("anthropic", tmp_path_factory.mktemp("anthropic"), SPEC)
    assert printed == [f"{way} It is 4." for way in WAYS], "the program noticed"
    return run


@pytest.fixture(scope="session")
def trajectories(run: Path) -> dict[str, Trajectory]:
    """The trajectories by the way the model was asked."""
    found = trajectories_of(run)
    assert {one.root.role for one in found} == {"trajectory"}, "a call outside of a trajectory was recorded"
    return {str(one.root.attributes["sample_index"]): one for one in found}
