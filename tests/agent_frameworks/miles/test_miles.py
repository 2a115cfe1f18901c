"""A step of each of Miles' rollout functions, without a line of a list: what every sample shows. The engines are a
stand-in."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import by_rollout

Told = list[tuple[dict[str, Any], Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What is trained on, and what was recorded of it."""
    pairs = by_rollout("miles", tmp_path_factory.mktemp("miles"))
    assert len(pairs) == 2 * 2 * 3
    return pairs


def test_every_sample_is_of_its_step_and_has_its_reward_and_advantage(told: Told) -> None:
    for row, rollout in told:
        assert rollout.attributes["step"] == row["step"]
        assert rollout.attributes["validate"] is False
        assert rollout.attributes["stop_reason"] == "completed"
        assert rollout.facts["reward"] == row["reward"], "also where the group was scored as a whole"
        assert rollout.facts["advantage"] == pytest.approx(row["advantage"], rel=1e-4)
    assert {row["reward"] for row, _ in told} == {0.0, 1.0}


def test_turns_have_the_tokens_that_are_trained_on(told: Told) -> None:
    for row, rollout in told:
        first, last = rollout.llm_spans
        assert [first, last] == [span for span in rollout.spans if span.role == "llm"], "nor is a request a turn below"
        assert [*last.prompt_ids, *last.response_ids] == row["tokens"]
        assert len(first.response_ids) + len(last.response_ids) == sum(row["mask"])
        assert {turn.attributes["weight_version"] for turn in (first, last)} == {"3"}


def test_the_users_reward_function(told: Told) -> None:
    for row, rollout in told:
        scores = [span.output for span in rollout.spans if span.role == "reward"]
        assert [score["score"] for score in scores] == ([row["reward"]] if row["step"] == 0 else [])
