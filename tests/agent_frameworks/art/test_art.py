"""ART: its rollouts are the user's functions. The list of docs/trainers.md names one, and what ART says of it later."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import ROOT, run_bare, run_program, trajectories_of

PAGE = ROOT / "docs" / "trainers.md"
Told = list[tuple[dict[str, Any], Trajectory]]


def page_list() -> str:
    """The list of the page, about the program here."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## ART\n")[2].partition("\n## ")[0]
    found = re.search(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("my_project.", "tests.agent_frameworks.art.program.")


def rows_of(printed: list[str]) -> list[dict[str, Any]]:
    """What the program printed; litellm prints, too."""
    return [json.loads(line) for line in printed if line.startswith("{")]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Trajectory]]:
    """The trainer's rows, and everything that was recorded."""
    folder: Path = tmp_path_factory.mktemp("art")
    run, printed = run_program("art", folder, page_list())
    assert rows_of(printed) == rows_of(run_bare("art", folder, "program"))
    return rows_of(printed), trajectories_of(run)


@pytest.fixture(scope="module")
def told(recorded: tuple[list[dict[str, Any]], list[Trajectory]]) -> Told:
    """Each row with its rollout."""
    rows, everything = recorded
    rollouts = [one for one in everything if one.root.role == "trajectory"]
    by_id = {(one.root.output or {})["metadata"]["rollout_id"]: one for one in rollouts}
    assert len(rows) == len(rollouts) == len(by_id) == 6
    return [(row, by_id[row["rollout_id"]]) for row in rows]


def test_reward_and_advantage_are_the_trainers(told: Told) -> None:
    for row, rollout in told:
        assert (rollout.root.output or {})["reward"] == row["own_reward"] == 1.0
        assert rollout.facts["reward"] == row["reward"], "RULER's, which came later"
        assert rollout.facts["advantage"] == row["advantage"]
        assert rollout.facts["reward_extra_info"]["used_tool"] is (not row["rollout_id"].endswith("/0"))
    assert {row["reward"] for row, _ in told} == {1.0, 1 / 3}


def test_rollouts_of_a_scenario_are_a_group(told: Told) -> None:
    groups = defaultdict(list)
    for row, rollout in told:
        assert rollout.attributes["step"] == 4
        assert rollout.attributes["sample_index"] == row["rollout_id"].split("/")[1]
        groups[rollout.attributes["uid"], rollout.attributes["sample_index"]].append(rollout.attributes["rollout_n"])
    assert len(groups) == 2
    assert all(sorted(numbers) == [0, 1, 2] for numbers in groups.values())


def test_turns_and_tools(told: Told) -> None:
    for row, rollout in told:
        first = row["rollout_id"].endswith("/0")
        assert [span.role for span in rollout.spans if span.role in ("llm", "tool")] == (
            ["llm"] if first else ["llm", "tool", "llm"]
        )
        assert rollout.llm_spans[-1].messages[-1]["content"] == "It is 4."


def test_without_a_list_each_conversation_is_a_trajectory(tmp_path: Path) -> None:
    run, _ = run_program("art", tmp_path)
    roots = [one for one in trajectories_of(run) if one.llm_spans[0].attributes["model"] == "tiny-1"]
    assert sorted(len(one.llm_spans) for one in roots) == [1, 1, 2, 2, 2, 2]
    assert {one.root.role for one in roots} == {"trajectory"}
