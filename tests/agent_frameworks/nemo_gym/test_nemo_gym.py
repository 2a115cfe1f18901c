"""NeMo-Gym's servers and its collection, each in a process of its own: what every rollout shows, without a line of a
list, and that it is what the collection returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.nemo_gym.model import serving
from tests.agent_frameworks.tracing import run_bare, run_program, trajectories_of
from tests.folders import contents

Told = list[tuple[dict[str, Any], Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the collection returned of each rollout, and what was recorded of it."""
    folder: Path = tmp_path_factory.mktemp("nemo_gym")
    run, printed = run_program("nemo_gym", folder, serving=serving)
    bare = tmp_path_factory.mktemp("bare")
    assert printed == run_bare("nemo_gym", bare, "program", serving=serving)
    recorded = trajectories_of(run)
    assert {one.root.role for one in recorded} == {"trajectory"}, "a call outside of its rollout was recorded"
    assert not any(b"sk-secret" in text for text in contents(run).values())
    rollouts = {(one.attributes["sample_index"], one.attributes["rollout_n"]): one for one in recorded}
    rows = [json.loads(line) for line in printed]
    assert len(rows) == len(recorded) == len(rollouts) == 4
    return [(row, rollouts[str(row["task"]), row["rollout"]]) for row in rows]


def test_rewards_are_the_verifiers(told: Told) -> None:
    assert [row["reward"] for row, _ in told] == [1.0, 0.0, 0.0, 0.0]
    for row, rollout in told:
        assert rollout.facts["reward"] == row["reward"]
        assert rollout.attributes["agent_name"] == "adder"
        (verify,) = [span for span in rollout.spans if span.role == "reward"]
        assert verify.output == row["reward"]
        assert verify.pid != rollout.root.pid, "the resources server's process"


def test_each_model_call_is_a_turn_with_the_servers_tokens(told: Told) -> None:
    for row, rollout in told:
        turns = rollout.llm_spans
        assert [[list(turn.prompt_ids or ()), list(turn.response_ids or ())] for turn in turns] == row["tokens"]
        assert {turn.pid for turn in turns}.isdisjoint({rollout.root.pid}), "the model server's process"
        first, last = turns
        assert first.end_ns is not None and rollout.root.start_ns < first.start_ns < first.end_ns < last.start_ns
        assert last.messages is not None
        assert last.messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": row["said"][1]}
        assert first.inputs["arguments"] == [row["said"][0]]
        assert rollout.root.output == row["said"][2]


def test_requests_of_the_agent_and_the_one_that_fails(told: Told) -> None:
    for row, rollout in told:
        agent = next(span for span in rollout.spans if span.role == "agent")
        asked = [span for span in rollout.spans if span.parent_id == agent.span_id and "path" in span.attributes]
        assert [span.attributes["server"] for span in asked] == ["policy_model", "sums", "policy_model"]
        tool = asked[1]
        assert tool.attributes["path"] == "/add"
        assert (tool.attributes["status"], tool.status) == ((200, "OK"), (500, "ERROR"))[row["task"]]


def test_nothing_is_found(told: Told) -> None:
    assert [mark.code for _, rollout in told for mark in examine(rollout, TrainerSettings()).marks] == []
