"""veRL's own agent-loop workers, many trajectories at once, read back from MLflow: none missing, none mixed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from programs import Program

from autotrace.cli.main import main
from tests.sinks.mlflow_tokens import token_ids

pytestmark = pytest.mark.timeout(900)  # the first test waits for the programs
LATER = [pytest.param(name, marks=pytest.mark.long) for name in ("v1", "resumed")]
BATCHES = {("1", "False"): 20, ("2", "False"): 20, ("3", "False"): 12, ("2", "True"): 12}


def role(span: Any) -> str:
    return str(span.get_attribute("autotrace.role"))


def numbers(text: str) -> set[str]:
    """Which questions a text mentions."""
    return set(re.findall(r"number (\d+)", text))


@pytest.mark.parametrize("name", ["classic", *LATER])
def test_none_is_missing(programs: dict[str, Program], traces: dict[str, list[Any]], name: str) -> None:
    tags = [trace.info.tags for trace in traces[name]]
    assert len(tags) == 64
    counts = {batch: sum((tag["step"], tag["validate"]) == batch for tag in tags) for batch in BATCHES}
    assert counts == BATCHES
    identities = {(tag["uid"], tag["rollout_n"], tag["validate"]) for tag in tags}
    assert len(identities) == 64
    assert {tag["experiment_name"] for tag in tags} == {"same-name"}


@pytest.mark.parametrize("name", ["classic", *LATER])
def test_none_is_mixed(traces: dict[str, list[Any]], name: str) -> None:
    rollouts = set()
    for trace in traces[name]:
        sample = trace.info.tags["sample_index"]
        (root,) = [span for span in trace.data.spans if span.parent_id is None]
        assert root.inputs["raw_prompt"][0]["content"] == f"[{name}] What is twice the number {sample}?"
        spans = sorted(trace.data.spans, key=lambda span: span.start_time_ns)
        assert [role(span) for span in spans if role(span) != "reward"][:3] == ["trajectory", "agent", "llm"]
        llm = [span for span in spans if role(span) == "llm"]
        assert len(llm) == 2
        assert numbers(str(llm[0].inputs["messages"])) == {sample}
        (tool,) = [span for span in spans if span.name == "FunctionTool.call"]
        assert tool.inputs["parameters"] == {"number": int(sample)}
        assert tool.outputs == str(2 * int(sample))
        assert f"#### {2 * int(sample)}" in str(llm[1].outputs)
        said = re.search(r"I am rollout (\d+)", str(llm[0].outputs))
        assert said is not None
        rollouts.add(said[1])
        assert [one.value for one in trace.info.assessments if one.name == "reward"] == [1.1]
    assert len(rollouts) == 64


@pytest.mark.parametrize("name", ["classic", LATER[0]])
def test_tokens_are_those_of_the_engine(programs: dict[str, Program], traces: dict[str, list[Any]], name: str) -> None:
    recorded = []
    for trace in traces[name]:
        llm = {span.span_id: span.attributes for span in trace.data.spans if role(span) == "llm"}
        recorded += token_ids(llm).values()
    seen = [(call["prompt_ids"], call["output_ids"]) for call in programs[name].calls]
    assert len(seen) == 128
    assert sorted(recorded) == sorted(seen)


@pytest.mark.parametrize("name", ["classic", LATER[0]])
def test_each_turn_has_its_texts_under_verls_names(programs: dict[str, Program], name: str) -> None:
    """What veRL's `token2text` promises for its trace: `prompt_text` and `response_text`, here of every turn."""
    asked = "SELECT turn, prompt_text, response_text FROM turns"
    told = CliRunner().invoke(main, ["sql", "--json", str(programs[name].run), asked], catch_exceptions=False)
    turns = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(turns) == 128 and {turn["turn"] for turn in turns} == {1, 2}
    for turn in turns:
        number = numbers(turn["prompt_text"]) if turn["turn"] == 1 else set()
        assert turn["turn"] == 2 or (f"[{name}] What is twice" in turn["prompt_text"] and len(number) == 1), turn
        assert ("I am rollout" if turn["turn"] == 1 else "#### ") in turn["response_text"], turn
        assert turn["turn"] == 1 or turn["prompt_text"], "the second prompt begins with the tool's answer"


@pytest.mark.long
def test_nothing_of_the_first_attempt_is_overwritten_by_a_resumed_run(traces: dict[str, list[Any]]) -> None:
    ids = {name: {trace.info.trace_id for trace in traces[name]} for name in ("classic", "resumed")}
    assert not ids["classic"] & ids["resumed"]
    uids = {name: {trace.info.tags["uid"] for trace in traces[name]} for name in ids}
    assert uids["classic"] == uids["resumed"]


def test_a_group_that_runs_again_in_one_process_is_another_attempt(traces: dict[str, list[Any]]) -> None:
    tags = [trace.info.tags for trace in traces["own_loop"]]
    assert len(tags) == 16
    keys = [(tag["uid"], tag["rollout_n"]) for tag in tags]
    assert sorted(keys) == sorted([*set(keys), *set(keys)])


def test_an_agent_loop_of_ones_own_is_traced_without_a_list(traces: dict[str, list[Any]]) -> None:
    for trace in traces["own_loop"]:
        (agent,) = [span for span in trace.data.spans if role(span) == "agent"]
        assert agent.name == "DebateLoop.run"
        children = [span for span in trace.data.spans if span.parent_id == agent.span_id]
        assert [role(span) for span in children].count("llm") == 3
        (pick,) = [span for span in children if span.name == "pick"]  # one line in a YAML file
        assert pick.outputs in (0, 1)
        assert len(pick.inputs["drafts"]) == 2


@pytest.mark.long
def test_a_killed_process_leaves_its_trajectory_interrupted(traces: dict[str, list[Any]]) -> None:
    (trace,) = traces["killed"]
    assert trace.info.tags["status"] == "INTERRUPTED"
    assert trace.info.state.value == "ERROR"
    status = {span.name: span.get_attribute("autotrace.status") for span in trace.data.spans}
    assert status["FunctionTool.call"] == "INTERRUPTED"
    assert [status[span.name] for span in trace.data.spans if role(span) == "tool"] == ["INTERRUPTED"] * 2
    assert status["turn 1"] == "OK"
    spans = {span.span_id: span for span in trace.data.spans}
    for span in spans.values():
        if span.parent_id is not None:
            assert span.end_time_ns <= spans[span.parent_id].end_time_ns
