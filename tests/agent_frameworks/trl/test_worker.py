"""Rollouts of TRL's asynchronous worker, without a line of a list: what every one shows, beside what is trained on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import rollouts_of


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], Trajectory]]:
    """Samples, each with the rollout of its group that said the same; further groups may have begun."""
    samples, rollouts = rollouts_of("trl", tmp_path_factory.mktemp("worker"), "worker")
    assert len(samples) == 12
    pairs = []
    for sample in samples:
        same = [
            one
            for one in rollouts
            if one.attributes["uid"] == str(sample["group"]) and tokens_of(one) == sample["tokens"]
        ]
        assert same, "no trajectory has these tokens"
        rollouts.remove(same[0])
        pairs.append((sample, same[0]))
    return pairs


def tokens_of(rollout: Trajectory) -> list[int]:
    last = rollout.llm_spans[-1]
    return [*(last.prompt_ids or ()), *(last.response_ids or ())]


def test_every_rollout_has_its_reward_and_advantage(told: list[tuple[dict[str, Any], Trajectory]]) -> None:
    for sample, rollout in told:
        assert rollout.facts["advantage"] == pytest.approx(sample["advantage"])
        assert rollout.facts["reward"] == pytest.approx(sample["metrics"]["reward"])
        parts = rollout.facts["reward_extra_info"]
        assert parts == {name: sample["metrics"][f"rewards/{name}"] for name in ("is_correct", "used_a_tool")}
        assert math.isclose(rollout.facts["reward"], sum(parts.values()))
    assert {round(sample["metrics"]["reward"], 1) for sample, _ in told} == {0.1, 1.1}


def test_turns_and_tools_stand_in_the_rollout(told: list[tuple[dict[str, Any], Trajectory]]) -> None:
    for sample, rollout in told:
        assert rollout.root.inputs["prompt"][0]["content"].startswith("What is ")
        first, last = rollout.llm_spans
        (tool,) = [span for span in rollout.spans if span.role == "tool"]
        assert tool.attributes["tool_name"] == "add"
        assert first.end_ns <= tool.start_ns and tool.end_ns <= last.start_ns
        assert sum(sample["mask"]) == (first.response_tokens or 0) + (last.response_tokens or 0)


def test_rollouts_of_a_prompt_are_a_group(told: list[tuple[dict[str, Any], Trajectory]]) -> None:
    groups: dict[object, list[Trajectory]] = {}
    for _, rollout in told:
        groups.setdefault(rollout.attributes["uid"], []).append(rollout)
    assert [len(group) for group in groups.values()] == [4, 4, 4]
    for group in groups.values():
        assert len({rollout.root.inputs["prompt"][0]["content"] for rollout in group}) == 1
        assert sum(rollout.facts["advantage"] for rollout in group) == pytest.approx(0, abs=1e-4)
