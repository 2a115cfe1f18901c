"""Agents behind Miles' session servers, without a line of a list: their requests are turns of their samples. The first
task's agent runs in Python inside of the rollout, the others are programs that no tracer enters."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import rollouts_of

Told = list[tuple[list[dict[str, Any]], Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The samples of each rollout that are trained on, and what was recorded of it."""
    rows, rollouts = rollouts_of("miles", tmp_path_factory.mktemp("sessions"), "sessions")
    by_name = {(one.attributes["uid"], one.attributes["rollout_n"]): one for one in rollouts}
    assert len(by_name) == len(rollouts) == 2 * 2 * 3
    names = groupby(rows, lambda row: (str(row["uid"]), row["rollout_n"]))
    return [([*samples], by_name[name]) for name, samples in names]


def test_a_request_is_a_turn_with_the_tokens_of_the_server(told: Told) -> None:
    for samples, rollout in told:
        assert rollout.attributes["step"] == samples[0]["step"]
        turns = rollout.llm_spans
        histories = [[*turn.prompt_ids, *turn.response_ids] for turn in turns]
        assert all(sample["tokens"] in histories for sample in samples)
        assert sum(len(turn.response_ids) for turn in turns) == sum(sum(sample["mask"]) for sample in samples)
        assert [turn.messages[-1]["role"] for turn in turns] == ["assistant"] * len(turns)
        assert {turn.attributes["weight_version"] for turn in turns} == {"3"}
        assert all((turn.duration_ns or 0) > 1_000_000 for turn in turns), "as long as the server needed"


def test_a_sub_agent_is_a_chain(told: Told) -> None:
    for samples, rollout in told:
        chains = tree_of(rollout).chains
        assert len(samples) == len(chains) == (2 if samples[0]["step"] else 1)
        assert sorted(len(chain.turns) for chain in chains) == ([1, 2] if samples[0]["step"] else [2])


def test_reward_and_advantage_are_the_samples(told: Told) -> None:
    for samples, rollout in told:
        assert [rollout.facts["reward"]] * len(samples) == [sample["reward"] for sample in samples]
        assert rollout.facts["advantage"] == pytest.approx(samples[0]["advantage"], rel=1e-4)


def test_nothing_is_found(told: Told) -> None:
    for _, rollout in told:
        assert [mark.code for mark in examine(rollout, TrainerSettings()).marks] == []
