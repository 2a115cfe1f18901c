"""Two steps of TRL's GRPOTrainer with two tools, without a line of a list: what every rollout shows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import run_program, trajectories_of


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    """All that was recorded of one run."""
    folder: Path = tmp_path_factory.mktemp("trl")
    run, printed = run_program("trl", folder)
    assert printed[-1] == "trained for 2 steps"
    return trajectories_of(run)


@pytest.fixture(scope="module")
def rollouts(everything: list[Trajectory]) -> list[Trajectory]:
    return [one for one in everything if one.root.role == "trajectory"]


def test_every_rollout_is_a_trajectory_of_its_group(rollouts: list[Trajectory]) -> None:
    assert len(rollouts) == 2 * 2 * 4
    groups: dict[tuple[object, object], list[Trajectory]] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.attributes["step"], rollout.attributes["uid"]), []).append(rollout)
    assert sorted(step for step, _ in groups) == [0, 0, 1, 1]
    for group in groups.values():
        assert sorted(rollout.attributes["rollout_n"] for rollout in group) == [0, 1, 2, 3]
        assert len({rollout.attributes["sample_index"] for rollout in group}) == 1, "the dataset's own id"
        assert len({str(rollout.root.inputs["prompt"]) for rollout in group}) == 1


def test_the_tokens_that_end_an_answer_are_known(rollouts: list[Trajectory]) -> None:
    ends = {TrainerSettings.decode(rollout.settings).end_tokens for rollout in rollouts}
    lasts = {(span.response_ids or [0])[-1] for rollout in rollouts for span in rollout.llm_spans}
    assert len(ends) == 1 and lasts & ends.pop()


def test_reward_and_advantage(rollouts: list[Trajectory]) -> None:
    for rollout in rollouts:
        parts = rollout.facts["reward_extra_info"]
        assert set(parts) == {"is_correct", "used_a_tool"}
        assert math.isclose(rollout.facts["reward"], sum(parts.values()), abs_tol=1e-6)
        own = {span.name: span.output for span in rollout.spans if span.role == "reward"}
        assert {name: pytest.approx(value) for name, value in parts.items()} == own
    by_group: dict[object, list[Trajectory]] = {}
    for rollout in rollouts:
        by_group.setdefault(rollout.attributes["uid"], []).append(rollout)
    for group in by_group.values():
        assert sum(rollout.facts["advantage"] for rollout in group) == pytest.approx(0, abs=1e-4)
        best = max(group, key=lambda rollout: float(rollout.facts["reward"]))
        assert best.facts["advantage"] == max(rollout.facts["advantage"] for rollout in group)


def test_turns_and_tools_stand_in_the_rollout_that_they_are_of(rollouts: list[Trajectory]) -> None:
    called = 0
    for rollout in rollouts:
        (conversation,) = [span for span in rollout.spans if span.role == "agent"]
        turns = rollout.llm_spans
        tools = [span for span in rollout.spans if span.role == "tool"]
        assert {span.parent_id for span in [*turns, *tools]} == {conversation.span_id}
        assert len([message for message in conversation.output if message["role"] == "tool"]) == len(tools)
        assert len(turns) == (2 if tools else 1)
        for tool in tools:
            assert f'"a": {tool.inputs["a"]}, "b": {tool.inputs["b"]}' in (turns[0].response_text or "")
            assert str(tool.output) in (turns[1].new_prompt_text or "")
        called += len(tools)
    assert called, "the model has learnt to call the tool"


def test_tokens_are_what_was_trained_on(rollouts: list[Trajectory]) -> None:
    for rollout in rollouts:
        (conversation,) = [span for span in rollout.spans if span.role == "agent"]
        first, last = rollout.llm_spans[0], rollout.llm_spans[-1]
        assert last.prompt_ids is not None and last.response_ids is not None
        assert first.prompt_ids is not None and conversation.response_ids is not None
        assert [*first.prompt_ids, *conversation.response_ids] == [*last.prompt_ids, *last.response_ids]
        mask = conversation.response_mask
        assert mask is not None and len(mask) == len(conversation.response_ids)
        assert sum(mask) == sum(turn.response_tokens or 0 for turn in rollout.llm_spans)


def test_the_batch_itself_is_a_trace_of_the_trainers(everything: list[Trajectory]) -> None:
    batches = [one for one in everything if one.root.role == "trainer"]
    assert [batch.attributes["step"] for batch in batches] == [0, 1]
    assert not [note for one in everything for note in one.notes]
