"""The shipped spec of smolagents: agents that call tools and agents that write code which does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.server import TEXT
from tests.agent_frameworks.tracing import run_program, trajectories_of
from tests.folders import contents

WAYS = ("tools", "streamed", "code")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, printed = run_program("smolagents", tmp_path_factory.mktemp("smolagents"))
    assert all(f"{way} {TEXT}" in printed for way in WAYS), "the program noticed"  # among what the framework prints
    return run


@pytest.fixture(scope="module")
def trajectories(run: Path) -> list[Trajectory]:
    return trajectories_of(run)


def test_runs_are_turns_and_tools_also_those_that_code_calls(trajectories: list[Trajectory]) -> None:
    shown = [[span.shown_name for span in one.spans if span.role != "engine"] for one in trajectories]
    assert shown == [
        ["caller", "turn 1", "add", "turn 2", "add", "turn 3"],
        ["speaker", "turn 1", "add", "turn 2", "add", "turn 3"],
        ["coder", "turn 1", "add", "final_answer"],
    ]  # fmt: skip
    assert {span.status for one in trajectories for span in one.spans} == {"OK"}


def test_turns_have_their_messages_and_usage(trajectories: list[Trajectory]) -> None:
    caller, speaker, coder = trajectories
    for span in (*caller.llm_spans, *speaker.llm_spans):
        assert span.messages is not None and span.messages[0]["role"] == "system"
        assert (span.prompt_tokens, span.response_tokens, span.attributes["model"]) == (7, 5, "tiny-1")
        assert span.messages[-1]["role"] == "assistant"
    for one in (caller, speaker):
        assert all(span.messages is None for span in one.spans if span.role == "engine"), "said twice"
    assert any(span.items for span in speaker.llm_spans)
    (written,) = coder.llm_spans
    assert written.messages is not None and "final_answer" in written.messages[-1]["content"]
    assert [message["role"] for message in written.messages] == ["system", "user", "assistant"]


def test_every_target_was_bound_and_called_and_no_key_was_recorded(run: Path) -> None:
    status = json.loads(CliRunner().invoke(main, ["status", str(run), "--json"], catch_exceptions=False).output)
    targets = [row for row in status["status"]["targets"] if row["key"].startswith("smolagents.")]
    assert len(targets) == 7
    for target in targets:
        assert "bound" in target["states"], target
        # of the clients and engines that models stream from, openai's is here
        assert target["calls"] or target["key"].endswith("generate_stream"), target
    assert sum(target["calls"] for target in targets if target["key"].endswith("generate_stream")) == 2, (
        "the last answer is none"
    )
    assert not any(b"sk-secret" in text for text in contents(run).values())
