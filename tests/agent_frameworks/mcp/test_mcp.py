"""The shipped spec of mcp against its own client and server, over stdio."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.sinks.mlflow.spans import encode
from tests.agent_frameworks.tracing import run_program, trajectories_of

SPEC = """
- target: tests.agent_frameworks.mcp.program.Agent.solve
  role: trajectory
  attributes: {sample_index: question}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, printed = run_program("mcp", tmp_path_factory.mktemp("mcp"), SPEC)
    assert printed == ["2 3 4", "5"], "the program noticed"
    return run


def test_each_trajectory_has_its_tool_calls_with_their_names_arguments_and_results(run: Path) -> None:
    trajectories = trajectories_of(run)
    assert sorted(str(one.root.attributes["sample_index"]) for one in trajectories) == ["0", "1", "2", "3"]
    for one in trajectories:
        number = int(str(one.root.attributes["sample_index"]))
        added, divided = sorted(one.spans[1:], key=lambda span: str(span.title))
        assert [(span.role, span.title, span.parent_id) for span in (added, divided)] == [
            ("tool", "add", one.root.span_id), ("tool", "divide", one.root.span_id),
        ]  # fmt: skip
        assert added.inputs == {"arguments": {"a": number, "b": 2}}
        assert (added.output, added.attributes["is_error"]) == (str(number + 2), False)
        assert divided.attributes["is_error"] is True and "divide" in divided.output
        assert (added.status, divided.status, one.root.status) == ("OK", "ERROR", "OK")
        assert divided.error is not None and divided.error[0] == "ToolError" and "divide" in str(divided.error_text)
        assert [mark.code for mark in examine(one, TrainerSettings()).marks if "TOOL" in mark.code] == [
            "AT-TOOL-RAISES"
        ]


def test_tools_are_shown_by_their_names(run: Path) -> None:
    tree = CliRunner().invoke(main, ["ls", str(run), "--tree"], catch_exceptions=False).output
    assert tree.count(" add  ") == tree.count(" divide  ") == 4 and "call_tool" not in tree
    names = {span.name for one in trajectories_of(run) for span in encode(one)}
    assert {"add", "divide"} <= names
