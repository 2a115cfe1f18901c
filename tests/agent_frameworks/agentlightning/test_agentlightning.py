"""Agent Lightning: rollouts of an agent in its own runner, as its own store tells them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import run_program, trajectories_of

Told = tuple[dict[str, dict[str, Any]], dict[str, Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the store says of each rollout, and the trajectories; by the rollout's id."""
    folder: Path = tmp_path_factory.mktemp("agentlightning")
    run, printed = run_program("agentlightning", folder)
    rows = [json.loads(line) for line in printed if line.startswith("{")]
    return {row["id"]: row for row in rows}, {one.attributes["session_id"]: one for one in trajectories_of(run)}


def test_each_rollout_is_a_trajectory_with_the_reward_that_the_store_has(told: Told) -> None:
    rows, trajectories = told
    assert rows.keys() == trajectories.keys() and len(rows) == 9
    for name, one in trajectories.items():
        assert (one.root.role, one.attributes["uid"]) == ("trajectory", rows[name]["uid"])
        assert one.facts.get("reward") == rows[name]["reward"]
        assert one.attributes["validate"] is (rows[name]["uid"] == "later")
        assert one.attributes["attempt"] == 1


def test_turns_are_those_of_the_client(told: Told) -> None:
    for name, one in told[1].items():
        assert len(one.llm_spans) == (0 if told[0][name]["uid"] == "fails" else 2)


def test_a_rollout_that_raised_failed(told: Told) -> None:
    for name, one in told[1].items():
        fails = told[0][name]["status"] == "failed"
        assert fails is (told[0][name]["uid"] == "fails") is (one.status == "ERROR")
        assert one.root.error_text == ("ValueError: no such task" if fails else None)
