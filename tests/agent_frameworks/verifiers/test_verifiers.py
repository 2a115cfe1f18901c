"""Episodes of verifiers, without a line of a list: what every rollout shows, whether its client is an evaluation's or a
trainer's, which has tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotrace.spool.records import OF
from autotrace.trajectory.model import Span, Trajectory
from tests.agent_frameworks.tracing import run_program, trajectories_of

Told = tuple[list[list[str]], dict[str, dict[str, Any]], dict[str, Trajectory]]


REWARDS = "- sums.SumTask.correct\n- sums.SumTask.used_the_tool\n"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the program printed of each episode; by their ids, what a trainer takes of some, and what was recorded."""
    run, printed = run_program("verifiers", tmp_path_factory.mktemp("verifiers"), REWARDS)
    found = trajectories_of(run)
    assert {one.root.role for one in found} == {"trajectory"}, "a model call stands outside of its rollout"
    lines = [line.split() for line in printed if line.startswith("sum-")]
    trained = [json.loads(line) for line in printed if line.startswith("{")]
    assert (len(lines), len(trained), len(found)) == (12, 6, 12)
    return lines, {one["id"]: one for one in trained}, {served(one)[0].attributes[OF]: one for one in found}


def test_functions_of_the_rubric_are_recorded_when_they_are_named(told: Told) -> None:
    for rollout in told[2].values():
        own = {span.name: span.output for span in rollout.spans if span.name.startswith("SumTask.")}
        parts = rollout.facts["reward_extra_info"]
        assert own == {f"SumTask.{name}": parts[name] for name in ("correct", "used_the_tool")}


def served(rollout: Trajectory) -> list[Span]:
    """The calls to the model that verifiers' server made for it."""
    return [span for span in rollout.spans if OF in span.attributes]


def test_every_episode_is_a_trajectory_with_its_reward(told: Told) -> None:
    printed, _, found = told
    assert [line[1] for line in printed] == ["True"] * 12
    assert {line[2] for line in printed} == set(found)
    for name, _, id, reward in printed:
        rollout = found[id]
        assert rollout.attributes["task_name"] == name
        assert rollout.facts["reward"] == pytest.approx(float(reward), abs=1e-3)
        parts = rollout.facts["reward_extra_info"]
        assert rollout.facts["reward"] == pytest.approx(parts["correct"] + 0.1 * parts["used_the_tool"])
    assert len({one.attributes["uid"] for one in found.values()}) == 2, "rollouts of one task are a group"


def test_model_calls_of_the_server_stand_in_their_rollout(told: Told) -> None:
    for rollout in told[2].values():
        assert rollout.turns == 2, "the agent's own call and the server's are one turn"
        first, last = rollout.llm_spans
        assert first.messages is not None and last.messages is not None
        assert first.messages[0]["content"] == rollout.root.inputs["prompt"]
        assert first.messages[-1]["tool_calls"][0]["function"]["name"] == "add"
        assert last.messages[-1]["content"].startswith("It is ")
        for call, turn in zip(served(rollout), (first, last), strict=True):
            assert turn.span_id in (call.span_id, call.parent_id), "the turn is the call that has tokens, if one has"


def test_tokens_are_what_is_trained_on(told: Told) -> None:
    _, trained, found = told
    for id, taken in trained.items():
        calls = found[id].llm_spans
        assert len(calls) == taken["turns"] == 2
        assert [*calls[-1].prompt_ids, *calls[-1].response_ids] == taken["tokens"]
        mask = [0] * len(taken["tokens"])
        for call in calls:
            start = call.prompt_tokens or 0
            mask[start : start + len(call.response_ids)] = [1] * len(call.response_ids)
        assert mask == taken["mask"]
