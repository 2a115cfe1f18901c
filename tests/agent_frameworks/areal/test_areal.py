"""Episodes of AReaL's workflows, without a line of a list: what every one shows. The engine is a stand-in."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import rollouts_of

Told = tuple[list[dict[str, Any]], list[Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the trainer gets of each episode, and what was recorded, in the same order."""
    return rollouts_of("areal", tmp_path_factory.mktemp("areal"))


def test_every_episode_has_its_tokens_and_reward(told: Told) -> None:
    rows, episodes = told
    assert len(rows) == len(episodes) == 7
    for row, episode in zip(rows, episodes, strict=True):
        assert episode.facts["reward"] == pytest.approx(row["reward"])
        last = episode.llm_spans[-1]
        assert [*last.prompt_ids, *last.response_ids] == row["tokens"]
        assert sum(turn.response_tokens or 0 for turn in episode.llm_spans) == sum(row["mask"])
        assert {turn.attributes["weight_version"] for turn in episode.llm_spans} == {5}
        scores = [span.output for span in episode.spans if span.role == "reward"]
        assert len(scores) == episode.turns, "each attempt is scored"
        assert episode.attributes["sample_index"] == "sum-2-2"
    assert {row["reward"] for row in rows} >= {0.0, 1.0}


def test_rollouts_of_a_prompt_are_a_group(told: Told) -> None:
    grouped, alone = told[1][:-1], told[1][-1]
    assert [episode.attributes["rollout_n"] for episode in grouped] == [0, 1, 2, 0, 1, 2]
    assert [len({episode.attributes["uid"] for episode in group}) for group in (grouped[:3], grouped[3:], grouped)] == [
        1, 1, 2,
    ]  # fmt: skip
    assert "rollout_n" not in alone.attributes
