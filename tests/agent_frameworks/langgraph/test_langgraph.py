"""The shipped specs of langchain-core and LangGraph: a graph is a tree of its nodes, turns and tools."""

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
from tests.agent_frameworks.server import ARGUMENTS, TEXT
from tests.agent_frameworks.tracing import ROOT, TIMEOUT, python_of, run_program, trajectories_of
from tests.docs.printed_trees import assert_shows, on_page
from tests.folders import contents

CHAINS = ("chain", "chain_stream", "chain_later", "chain_stream_later")
ANSWERS = ("invoke", "stream", "ainvoke", "astream", "own_graph", "refused", *CHAINS, "interrupted")
SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOLD = {"role": "tool", "content": "4", "tool_call_id": "call_1", "name": "add"}
ANSWER = {"role": "assistant", "content": TEXT}
AGENT = ["adder", ["model", ["turn 1", ["create"]]], ["tools", ["add"]], ["model", ["turn 2", ["create"]]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, printed = run_program("langgraph", tmp_path_factory.mktemp("langgraph"))
    assert printed == [f"{way} {TEXT}" for way in ANSWERS], "the program noticed"
    return run


@pytest.fixture(scope="module")
def trajectories(run: Path) -> dict[str, Trajectory]:
    *others, resumed = trajectories_of(run)
    return {**dict(zip(ANSWERS, others, strict=True)), "resumed": resumed}


def _tree(trajectory: Trajectory, span: Span) -> list[object]:
    below = [child for child in trajectory.spans if child.parent_id == span.span_id]
    return [span.shown_name.rpartition(".")[2], *(_tree(trajectory, child) for child in below)]


@pytest.mark.parametrize("way", ANSWERS[:4])
def test_a_graph_is_a_tree_of_nodes_turns_and_tools_each_once(trajectories: dict[str, Trajectory], way: str) -> None:
    trajectory = trajectories[way]
    assert _tree(trajectory, trajectory.root) == AGENT
    assert {span.status for span in trajectory.spans} == {"OK"}
    assert [span.role for span in trajectory.spans if span.shown_name in ("adder", "model", "add")] == [
        "agent", "span", "tool", "span",
    ]  # fmt: skip


@pytest.mark.parametrize("way", ANSWERS[:4])
def test_turns_have_messages_of_every_role_usage_and_model(trajectories: dict[str, Trajectory], way: str) -> None:
    first, second = trajectories[way].llm_spans
    assert first.messages == [SYSTEM, ASKED, CALLED]
    assert second.messages == [SYSTEM, ASKED, {**CALLED, "name": "adder"}, TOLD, ANSWER]
    assert [span.attributes["finish_reason"] for span in (first, second)] == ["tool_calls", "stop"]
    for span in (first, second):
        assert span.attributes["model"] == "tiny-1"
        if way != "stream":  # there, the program's own request does not ask for usage
            assert (span.prompt_tokens, span.response_tokens) == (7, 5)


@pytest.mark.parametrize("way", ANSWERS[:4])
def test_messages_stand_once_and_tools_return_text(trajectories: dict[str, Trajectory], way: str) -> None:
    spans = trajectories[way].spans
    assert [span.messages for span in spans if span.role == "engine"] == [None, None]
    assert [span.output for span in spans if span.role == "tool"] == ["4"]


def test_a_node_that_waits_for_a_person_did_not_fail(trajectories: dict[str, Trajectory]) -> None:
    waiting = trajectories["interrupted"]
    assert _tree(waiting, waiting.root) == ["asker", ["ask"]] and {span.status for span in waiting.spans} == {"OK"}
    (node,) = waiting.spans[1:]
    assert (node.attributes["outcome"], node.error) == ("interrupted", None)
    assert "outcome" not in trajectories["resumed"].spans[1].attributes


def test_a_tool_whose_error_the_model_is_told_failed(trajectories: dict[str, Trajectory]) -> None:
    (tool,) = (span for span in trajectories["refused"].spans if span.role == "tool")
    assert (tool.status, tool.error and tool.error[:2]) == ("ERROR", ("ToolError", "cannot add 2 and 2"))
    assert trajectories["refused"].root.status == "OK" and trajectories["refused"].llm_spans[-1].messages is not None


def test_graphs_in_graphs_and_models_without_a_client(trajectories: dict[str, Trajectory]) -> None:
    trajectory = trajectories["own_graph"]
    assert _tree(trajectory, trajectory.root) == ["planner", ["plan"], ["work", AGENT], ["polish", ["turn 3"]]]
    polished = trajectory.llm_spans[-1]
    assert polished.items > 1 and polished.messages is not None
    assert polished.messages[-1] == {"role": "assistant", "content": "Well, it is 4."}


@pytest.mark.parametrize("way", CHAINS)
def test_a_chain_by_itself_is_recorded(trajectories: dict[str, Trajectory], way: str) -> None:
    trajectory = trajectories[way]
    assert _tree(trajectory, trajectory.root) == ["chain", ["turn 1", ["create"]]]
    assert trajectory.llm_spans[0].messages == [SYSTEM, ASKED, ANSWER]


def test_the_tree_of_ls_is_what_the_program_is_made_of(run: Path) -> None:
    tree = CliRunner().invoke(main, ["ls", str(run), "--tree"], catch_exceptions=False).output
    lines = [line.partition("── ")[2].split("  ")[0] for line in tree.splitlines()]
    start = lines.index("work")
    assert lines[start - 1 : start + 9] == [
        "plan", "work", "adder", "model", "turn 1", "tools", "add", "model", "turn 2", "polish",
    ]  # fmt: skip


def test_the_example_gives_the_tree_of_its_page(tmp_path: Path) -> None:
    command = "autotrace-run --backend jsonl python examples/langgraph_agent/agent.py"
    assert command in (ROOT / "examples/langgraph_agent/agent.py").read_text(), "the example says how to run it"
    python, words = python_of("langgraph"), command.split()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "OPENAI"))}
    done = subprocess.run(
        [python, "-m", "autotrace.launch.main", "--run-dir", str(tmp_path), *words[1:3], python, words[-1]],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+) It is \d+ degrees in \1\.$", done.stdout, re.MULTILINE) == ["Aachen", "Bonn", "Celle"]
    (run,) = tmp_path.glob("*/run.json")
    assert len((run.parent / "trajectories.jsonl").read_text().splitlines()) == 3
    printed = CliRunner().invoke(main, ["ls", str(run.parent), "--tree"], catch_exceptions=False).output
    assert_shows(printed, on_page("your-agent.md", command))


def test_every_target_was_bound_and_called_and_no_key_was_recorded(run: Path) -> None:
    status = json.loads(CliRunner().invoke(main, ["status", str(run), "--json"], catch_exceptions=False).output)
    targets = [row for row in status["status"]["targets"] if row["key"].startswith(("langgraph.", "langchain_core."))]
    assert len(targets) == 16
    for target in targets:
        assert (list(target["states"]), bool(target["calls"])) == (["bound"], True), target
    assert not any(b"sk-secret" in text for text in contents(run).values())
