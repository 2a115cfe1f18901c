"""The shipped spec of mini-swe-agent: its runs, with the turns that it asks through litellm, and its commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.server import COMMANDS
from tests.agent_frameworks.tracing import run_bare, run_program, trajectories_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    """What was recorded of a run that submits, and of one that may make two steps."""
    folder: Path = tmp_path_factory.mktemp("mini_swe_agent")
    run, printed = run_program("mini_swe_agent", folder)
    assert printed == run_bare("mini_swe_agent", folder, "program")
    return trajectories_of(run)


def test_a_run_has_its_turns_and_its_commands(runs: list[Trajectory]) -> None:
    submitted, limited = runs
    assert [span.attributes["stop_reason"] for span in (submitted.root, limited.root)] == [
        "Submitted",
        "LimitsExceeded",
    ]
    assert [len(one.llm_spans) for one in runs] == [len(COMMANDS), 2]
    shell = [span for span in submitted.spans if span.role == "tool"]
    assert [(span.inputs or {})["command"] for span in shell] == COMMANDS
    assert [span.status for span in shell] == ["OK", "ERROR", "OK"]
    assert shell[-1].attributes["outcome"] == "submitted"
    assert {span.parent_id for span in shell} == {submitted.root.span_id}


def test_messages_have_what_the_commands_said(runs: list[Trajectory]) -> None:
    last = runs[0].llm_spans[-1].messages
    assert [message["role"] for message in last] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    assert "<returncode>0</returncode>" in str(last[3])


def test_only_the_command_that_hung_is_found(runs: list[Trajectory]) -> None:
    assert [mark.code for mark in examine(runs[0], TrainerSettings()).marks] == ["AT-TOOL-RAISES"]
    assert "timed out after 2 seconds" in str(next(span.error for span in runs[0].spans if span.error))
