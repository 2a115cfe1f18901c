"""Episodes of verifiers, without a line of a list: what every rollout shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.spool.records import OF
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import run_program, trajectories_of


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[str]], list[Trajectory]]:
    """What the program printed of each episode, and what was recorded."""
    folder: Path = tmp_path_factory.mktemp("verifiers")
    run, printed = run_program("verifiers", folder)
    return [line.split() for line in printed], trajectories_of(run)


def test_every_episode_is_a_trajectory_with_its_reward(told: tuple[list[list[str]], list[Trajectory]]) -> None:
    printed, found = told
    assert [line[1] for line in printed] == ["True"] * 6
    assert {one.root.role for one in found} == {"trajectory"}, "a model call stands outside of its rollout"
    expected = sorted((name, float(reward)) for name, _, _, reward in printed)
    assert sorted((str(one.attributes["task_name"]), round(one.facts["reward"], 3)) for one in found) == expected
    for one in found:
        parts = one.facts["reward_extra_info"]
        assert one.facts["reward"] == pytest.approx(parts["correct"] + 0.1 * parts["used_the_tool"])
    assert len({one.attributes["uid"] for one in found}) == 2, "rollouts of one task are a group"


def test_model_calls_of_the_server_stand_in_their_rollout(told: tuple[list[list[str]], list[Trajectory]]) -> None:
    printed, found = told
    names = set()
    for one in found:
        assert one.turns == 2, "the agent's own call and the server's are one turn"
        first, last = one.llm_spans
        assert first.messages is not None and last.messages is not None
        assert first.messages[0]["content"] == one.root.inputs["prompt"]
        assert first.messages[-1]["tool_calls"][0]["function"]["name"] == "add"
        assert last.messages[-1]["content"] == "It is 4."
        served = [span for span in one.spans if OF in span.attributes]
        assert [span.parent_id for span in served] == [first.span_id, last.span_id]
        names |= {span.attributes[OF] for span in served}
    assert names == {line[2] for line in printed}
