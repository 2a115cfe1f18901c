"""The shipped spec of pydantic-ai: runs of an agent, its turns and tools, also streamed and without a client."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.trajectory.model import Span, Trajectory
from tests.agent_frameworks.server import TEXT
from tests.agent_frameworks.tracing import ROOT, TIMEOUT, python_of, run_program, trajectories_of
from tests.docs.printed_trees import assert_shows, on_page
from tests.folders import contents

NAMES = {
    "run": "agent",
    "run_stream": "agent",
    "without_a_client": "own",
    "stream_without_a_client": "own",
    "iterate": "agent",
}
WAYS = (*NAMES, "iterate_by_hand")
ENDS = {way: TEXT for way in WAYS} | {"left_in_the_middle": "enough"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, printed = run_program("pydantic_ai", tmp_path_factory.mktemp("pydantic_ai"))
    assert printed == [f"{way} {end}" for way, end in ENDS.items()], "the program noticed"
    return run


@pytest.fixture(scope="module")
def trajectories(run: Path) -> dict[str, Trajectory]:
    return dict(zip(ENDS, trajectories_of(run), strict=True))


def _tree(trajectory: Trajectory, span: Span) -> list[object]:
    below = [child for child in trajectory.spans if child.parent_id == span.span_id and child.role != "engine"]
    return [span.shown_name, *(_tree(trajectory, child) for child in below)]


@pytest.mark.parametrize(("way", "name"), [*NAMES.items()])
def test_a_run_is_a_tree_of_turns_and_tools(trajectories: dict[str, Trajectory], way: str, name: str) -> None:
    trajectory = trajectories[way]
    assert _tree(trajectory, trajectory.root) == [name, ["turn 1"], ["add"], ["turn 2"]]
    assert {span.status for span in trajectory.spans} == {"OK"} and trajectory.root.end_ns is not None


def test_what_the_body_of_an_iteration_begins_is_inside_of_it(trajectories: dict[str, Trajectory]) -> None:
    trajectory = trajectories["iterate_by_hand"]
    again = ["agent", ["turn 3"], ["add"], ["turn 4"]]
    assert _tree(trajectory, trajectory.root) == ["agent", ["turn 1"], ["add"], ["turn 2"], again]
    for span in trajectory.spans:
        if span.role == "agent":
            assert span.output == TEXT and span.end_ns is not None
            assert all(child.end_ns <= span.end_ns for child in trajectory.spans if child.parent_id == span.span_id)


def test_an_error_in_the_body_of_an_iteration_is_its_own(trajectories: dict[str, Trajectory]) -> None:
    root = trajectories["left_in_the_middle"].root
    assert (root.status, root.error and root.error[0]) == ("ERROR", "LookupError")
    assert _tree(trajectories["left_in_the_middle"], root) == ["agent", ["turn 1"]]


@pytest.mark.parametrize("way", WAYS)
def test_turns_have_messages_of_every_role_and_usage(trajectories: dict[str, Trajectory], way: str) -> None:
    first, second = trajectories[way].llm_spans[:2]
    assert first.messages is not None and second.messages is not None
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert second.messages[:2] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    call = first.messages[-1]["tool_calls"][0]
    assert (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "call_1", "add", {"a": 2, "b": 2},
    )  # fmt: skip
    assert second.messages[3]["content"] == "4" and second.messages[-1]["content"] == TEXT
    assert all(span.messages is None for span in trajectories[way].spans if span.role == "engine"), "said twice"
    assert first.prompt_tokens and first.response_tokens and first.attributes["model"]


def test_the_example_gives_the_tree_of_its_page(tmp_path: Path) -> None:
    command = "autotrace-run --backend jsonl python examples/pydantic_ai_agent/agent.py"
    assert command in (ROOT / "examples/pydantic_ai_agent/agent.py").read_text(), "the example says how to run it"
    python, words = python_of("pydantic_ai"), command.split()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "OPENAI"))}
    done = subprocess.run(
        [python, "-m", "autotrace.launch.main", "--run-dir", str(tmp_path), *words[1:3], python, words[-1]],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+) It is \d+ degrees in \1\.$", done.stdout, re.MULTILINE) == ["Aachen", "Bonn", "Celle"]
    (run,) = tmp_path.glob("*/run.json")
    printed = CliRunner().invoke(main, ["ls", str(run.parent), "--tree"], catch_exceptions=False).output
    assert_shows(printed, on_page("your-agent.md", command))


def test_every_target_was_bound_and_called_and_no_key_was_recorded(run: Path) -> None:
    status = json.loads(CliRunner().invoke(main, ["status", str(run), "--json"], catch_exceptions=False).output)
    targets = [row for row in status["status"]["targets"] if row["key"].startswith("pydantic_ai.")]
    assert len(targets) == 6
    for target in targets:
        assert (list(target["states"]), bool(target["calls"])) == (["bound"], True), target
    assert not any(b"sk-secret" in text for text in contents(run).values())
