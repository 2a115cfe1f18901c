"""rLLM: a program that no tracer enters, behind rLLM's model gateway. Its trajectories are trees; identity, tokens and
rewards are those of the engine's episodes.

``RLLM``: a checkout of rllm-org/rllm, which is on no index.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.chains import path, tree_of
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.tracing import run_program, trajectories_of
from tests.agent_frameworks.uni_agent.test_uni_agent import KINDS

Rollout = tuple[str, int]
Told = tuple[dict[Rollout, dict[str, Any]], dict[Rollout, Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The episodes that the program printed, and the trajectories that were recorded."""
    assert "RLLM" in os.environ, "RLLM has to name a checkout of rllm-org/rllm"
    run, printed = run_program("rllm", tmp_path_factory.mktemp("rllm"))
    episodes = [json.loads(line) for line in printed if line.startswith('{"uid"')]
    rollouts = [one for one in trajectories_of(run) if one.root.role == "trajectory"]
    return (
        {(each["uid"], each["rollout_n"]): each for each in episodes},
        {(one.attributes["uid"], one.attributes["rollout_n"]): one for one in rollouts},
    )


def test_every_episode_is_a_trajectory(told: Told) -> None:
    episodes, rollouts = told
    assert len(rollouts) == 20 and rollouts.keys() == episodes.keys()
    for (uid, rollout), one in rollouts.items():
        assert one.attributes["step"] == 3 and one.status == ("ERROR" if uid == "t-raises" else "OK"), (uid, rollout)
        assert [one.facts.get("reward")] == (episodes[uid, rollout]["rewards"] or [None])


def test_tokens_are_those_that_the_trainer_has(told: Told) -> None:
    episodes, rollouts = told
    for name, one in rollouts.items():
        turns = [[[*span.prompt_ids], [*span.response_ids]] for span in one.llm_spans]
        assert sorted(turns) == sorted(episodes[name]["turns"]), name
        assert sum(len(response) for _, response in turns) == episodes[name]["trained"], name
        assert all((span.duration_ns or 0) > 20_000_000 for span in one.llm_spans if "streamed" not in name[0]), name


def test_histories_come_back_as_trees(told: Told) -> None:
    for (uid, _), one in told[1].items():
        chains = tree_of(one).chains
        made = [[len(path(chains, chain)), *([chain.kind] if chain.kind else [])] for chain in chains]
        flow = uid.removeprefix("t-").replace("streamed", "linear")
        assert sorted(map(str, made)) == sorted(map(str, KINDS[flow])), uid
        if uid == "t-subagents":  # both were started by the turn that asked for them, and ran at the same time
            asked = next(chain.turns[0] for chain in chains if chain.kind is None)
            assert [chain.after for chain in chains if len(chain.turns) == 2 and chain.kind] == [asked, asked]


def test_findings_are_those_of_the_flows_that_went_wrong(told: Told) -> None:
    """A program that crashed or hung is an episode like others to the engine, which says so nowhere."""
    for (uid, _), one in told[1].items():
        marks = {mark.code: mark.note for mark in examine(one, TrainerSettings()).marks}
        expected = {
            "t-long": ["AT-TRUNCATED"], "t-raises": ["AT-ROLLOUT-FAILED"],
            "t-rewrite": ["AT-ANSWER-FOREIGN"],  # the harness writes an answer itself
        }  # fmt: skip
        assert list(marks) == expected.get(uid, []), uid
        if uid == "t-raises":
            assert marks["AT-ROLLOUT-FAILED"] == "RuntimeError: the sandbox could not be started"
