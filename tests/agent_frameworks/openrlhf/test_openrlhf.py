"""Rollouts of OpenRLHF's executors, without a line of a list: what every one shows. vLLM is a stand-in; the actor that
holds it, the executors and the computing of advantages are OpenRLHF's."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import rollouts_of


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Trajectory]]:
    """What the actor gave the trainer of each rollout, and what was recorded, in the same order."""
    return rollouts_of("openrlhf", tmp_path_factory.mktemp("openrlhf"))


def test_every_rollout_has_its_tokens_and_reward(told: tuple[list[dict[str, Any]], list[Trajectory]]) -> None:
    responses, rollouts = told
    assert len(rollouts) == len(responses) == 12
    for response, rollout in zip(responses, rollouts, strict=True):
        assert rollout.facts["reward"] == pytest.approx(response["reward"])
        assert rollout.turns == len(response["ranges"]) == (2 if response["executor"] == "AgentExecutor" else 1)
        for turn, (start, end) in zip(rollout.llm_spans, response["ranges"], strict=True):
            assert list(turn.prompt_ids or ()) == response["tokens"][:start]
            assert list(turn.response_ids or ()) == response["tokens"][start:end]
        assert rollout.root.inputs["label"] == ("4", "5")[response["prompt"]]
    assert {round(rollout.facts["reward"], 1) for rollout in rollouts} == {0.1, 0.5, 1.1}


def test_the_advantage_that_the_trainer_computed(told: tuple[list[dict[str, Any]], list[Trajectory]]) -> None:
    for response, rollout in zip(*told, strict=True):
        assert rollout.facts["advantage"] == pytest.approx(response["advantage"], abs=1e-6), "also of equal answers"
        assert "token_level_score" not in rollout.facts, "it is the rollout's reward"
    assert min(response["advantage"] for response in told[0]) < -0.5


def test_rollouts_of_a_prompt_are_a_group(told: tuple[list[dict[str, Any]], list[Trajectory]]) -> None:
    groups: dict[object, list[Trajectory]] = {}
    for rollout in told[1]:
        groups.setdefault(rollout.attributes["uid"], []).append(rollout)
    assert len(groups) == 4
    for group in groups.values():
        assert [rollout.attributes["rollout_n"] for rollout in group] == [0, 1, 2]
        assert len({rollout.root.inputs["prompt"] for rollout in group}) == 1


def test_the_environments_steps_and_the_reward_function(told: tuple[list[dict[str, Any]], list[Trajectory]]) -> None:
    for response, rollout in zip(*told, strict=True):
        steps = [span for span in rollout.spans if span.role == "env" and span.name.endswith("step")]
        scores = [span for span in rollout.spans if span.role == "reward"]
        if response["executor"] == "AgentExecutor":
            assert [step.output["done"] for step in steps] == [False, True] and not scores
            assert rollout.facts["reward_extra_info"] == {"right": response["reward"] > 1}
        else:
            assert len(scores) == 1 and not steps
