"""The shipped spec of the OpenHands SDK: runs of conversations, with the turns that they ask through litellm, and their
tools."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.chains import Tree
from autotrace.trajectory.model import Span, Trajectory
from tests.agent_frameworks.tracing import run_bare, run_program, trajectories_of
from tests.folders import contents

Played = dict[str, tuple[dict[str, Any], Trajectory]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """By the way in which a conversation went: what the program saw of it, and what was recorded."""
    folder: Path = tmp_path_factory.mktemp("openhands")
    run, printed = run_program("openhands", folder)
    assert printed == run_bare("openhands", folder, "program")
    assert not any(b"sk-secret" in text for text in contents(run).values())
    seen, recorded = [json.loads(line) for line in printed], trajectories_of(run)
    assert [one.root.name for one in recorded] == ["openhands"] * len(seen)
    return {one["way"]: (one, trajectory) for one, trajectory in zip(seen, recorded, strict=True)}


def tools_of(trajectory: Trajectory) -> list[Span]:
    return [span for span in trajectory.spans if span.role == "tool"]


def test_a_run_says_why_it_stopped(played: Played) -> None:
    reasons = {way: trajectory.root.attributes.get("stop_reason") for way, (_, trajectory) in played.items()}
    assert reasons == {
        "finishes": "finished",
        "too long": "MaxIterationsReached",
        "stuck": "stuck",
        "fails": "finished",
        "side by side": "finished",
        "awaited": "finished",
        "sub-agent": "finished",
        "summarised": "finished",
        "no model": None,
    }
    seen, failed = played["no model"]
    assert failed.status == "ERROR"
    assert failed.root.error is not None
    assert failed.root.error[0].endswith(f".{seen['raised']}")


def test_each_answer_is_one_turn_and_each_call_one_tool(played: Played) -> None:
    for way, (seen, trajectory) in played.items():
        events = Counter(seen["events"])
        outer = [span for span in tools_of(trajectory) if span.parent_id == trajectory.root.span_id]
        assert len(outer) == events["ObservationEvent"] + events["AgentErrorEvent"], way
        asked = Counter(str(span.attributes["tool_name"]) for span in outer)
        answers = [turn.messages[-1] for turn in trajectory.llm_spans if turn.status == "OK"]
        calls = [call for answer in answers for call in answer.get("tool_calls") or ()]
        assert asked == Counter(call["function"]["name"] for call in calls), way
        summaries = events["Condensation"]
        assert len([answer for answer in answers if not answer.get("tool_calls")]) == summaries, way


def test_tools_have_arguments_and_results(played: Played) -> None:
    shell, divide, finish = tools_of(played["finishes"][1])
    assert shell.inputs is not None
    assert shell.inputs["action"]["command"] == "echo 3"
    assert "3" in str(shell.output)
    assert shell.attributes["exit_code"] == 0
    assert divide.inputs == {"action": {"type": "DivideAction", "a": 6, "b": 2}}
    assert (divide.output, finish.output) == ("3", "It is 3.")


def test_what_failed_is_an_error(played: Played) -> None:
    trajectory = played["fails"][1]
    timed_out, raised, refused, unknown, unfit, finish = tools_of(trajectory)
    assert timed_out.attributes["exit_code"] == -1
    assert raised.error is not None
    assert raised.error[:2] == ("ValueError", "there is no quotient")
    assert refused.error_text == "ToolError: It leaves a rest."
    assert unknown.attributes["tool_name"] == "multiply"
    assert "not found" in (unknown.inputs or {})["error"]
    assert "valid integer" in (unfit.inputs or {})["error"]
    failed = (timed_out, raised, refused, unknown, unfit)
    assert [span.status for span in (*failed, finish)] == ["ERROR"] * 5 + ["OK"]
    assert [mark.code for mark in examine(trajectory, TrainerSettings()).marks] == ["AT-TOOL-RAISES"] * 5


def test_nothing_is_found_in_what_went_well(played: Played) -> None:
    for way in ("finishes", "too long", "side by side", "awaited", "sub-agent", "summarised"):
        assert examine(played[way][1], TrainerSettings()).marks == [], way


@pytest.mark.parametrize("way", ["side by side", "awaited"])
def test_tools_in_threads_stand_below_their_run(played: Played, way: str) -> None:
    trajectory = played[way][1]
    divided = [span for span in tools_of(trajectory) if span.attributes["tool_name"] == "divide"]
    assert sorted(str(span.output) for span in divided) == ["2", "3", "6"]
    assert {span.parent_id for span in divided} == {trajectory.root.span_id}


def test_a_sub_agent_stands_below_the_tool_that_asked_it(played: Played) -> None:
    trajectory = played["sub-agent"][1]
    task = next(span for span in tools_of(trajectory) if span.attributes["tool_name"] == "task")
    (sub_agent,) = [span for span in trajectory.spans if span.role == "agent" and span is not trajectory.root]
    assert sub_agent.parent_id == task.span_id
    assert sub_agent.attributes["stop_reason"] == "finished"
    below = [span for span in trajectory.spans if span.parent_id == sub_agent.span_id]
    assert [span.role for span in below] == ["llm", "tool"] * 2
    assert len(trajectory.llm_spans) == 2


def test_a_summary_is_a_chain_and_what_it_replaces_is_left(played: Played) -> None:
    begun, summary, gone_on = Tree(played["summarised"][1]).chains
    assert (summary.turns, summary.after) == ([7], 6)
    assert (gone_on.kind, gone_on.after, gone_on.turns[0]) == ("compaction", 7, 8)
    assert begun.turns == [*range(1, 7)]
