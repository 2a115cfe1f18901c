"""A recorded node function shows LangGraph and langchain-core the graphs that the function calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_frameworks.tracing import run_bare, run_program


@pytest.mark.parametrize("role", ["tool", "trajectory"])
def test_a_graph_below_a_recorded_node_is_found_and_resumed(tmp_path: Path, role: str) -> None:
    bare = run_bare("langgraph", tmp_path, "subgraph")
    assert bare[0] == "plain [{'n': 1}, {'n': 1}, {'n': 42}]"
    spec = f"- {{target: tests.agent_frameworks.langgraph.subgraph.**, role: {role}}}\n"
    assert run_program("langgraph", tmp_path, spec, "subgraph")[1] == bare
