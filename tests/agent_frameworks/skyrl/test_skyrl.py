"""A step of SkyRL, without a line of a list: what every rollout shows, and that it is what the trainer has."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import by_rollout

Told = list[tuple[dict[str, Any], Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the trainer has of each rollout, and what was recorded of it."""
    pairs = by_rollout("skyrl", tmp_path_factory.mktemp("skyrl"))
    assert len(pairs) == 6
    return pairs


def test_every_rollout_is_of_its_step_and_sample(told: Told) -> None:
    for row, rollout in told:
        assert rollout.attributes["step"] == 7
        assert rollout.attributes["validate"] is False
        assert rollout.attributes["data_source"] == "sums"
        assert f"prompt-{int(rollout.attributes['sample_index']) - 40}" == row["uid"]


def test_tokens_reward_and_advantage_are_the_trainers(told: Told) -> None:
    for row, rollout in told:
        root = rollout.root
        assert list(rollout.llm_spans[0].prompt_ids or ()) == row["prompt"]
        assert list(root.response_ids or ()) == row["response"]
        assert list(root.response_mask or ()) == row["mask"]
        assert rollout.facts["reward"] == pytest.approx(row["reward"])
        assert rollout.facts["advantage"] == pytest.approx(row["advantage"], rel=1e-4)
    assert {row["reward"] for row, _ in told} == {1.125, 0.125}
    assert min(row["advantage"] for row, _ in told) < -0.5


def test_turns_the_environment_and_its_tool(told: Told) -> None:
    for row, rollout in told:
        first, last = rollout.llm_spans
        assert [*first.prompt_ids, *rollout.root.response_ids] == [*last.prompt_ids, *last.response_ids]
        steps = [span for span in rollout.spans if span.name.endswith("step")]
        assert [step.output["done"] for step in steps] == [False, True], "also those that a pool of threads runs"
        (tool,) = [span for span in rollout.spans if span.role == "tool"]
        assert tool.attributes["tool_name"] == "add"
        assert tool.output == 2 + int(row["uid"][-1])
        assert tool.parent_id == steps[0].span_id
