"""uni-agent: harnesses that no tracer enters, behind a gateway that captures tokens. Trajectories are trees, and each
chain is the row that TransferQueue holds, with the advantage that veRL computed.

``UNI_AGENT``: a checkout of verl-project/uni-agent; the distribution of that name is another project.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.chains import BEST_OF, COMPACTION, REWRITE, SUB_AGENT, path, tree_of
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.receipt import words
from tests.agent_frameworks.tracing import run_program, trajectories_of
from tests.tables import reading

Told = tuple[dict[tuple[str, int, int], dict[str, Any]], dict[tuple[str, int], Trajectory]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The rows that the program printed, and the sessions that were recorded."""
    assert "UNI_AGENT" in os.environ, "UNI_AGENT has to name a checkout of verl-project/uni-agent"
    run, printed = run_program("uni_agent", tmp_path_factory.mktemp("uni_agent"))
    rows = [json.loads(line) for line in printed if line.startswith('{"uid"')]
    sessions = [one for one in trajectories_of(run) if one.root.role == "trajectory"]
    return (
        {(row["uid"], row["rollout_n"], row["row"]): row for row in rows},
        {(one.attributes["uid"], one.attributes["rollout_n"]): one for one in sessions},
    )


def test_every_session_is_a_trajectory(told: Told) -> None:
    rows, sessions = told
    assert len(sessions) == 22 and len(rows) == 30
    for (uid, rollout), one in sessions.items():
        assert len({turn.pid for turn in one.llm_spans}) <= 1, "a session is in one gateway"
        assert one.attributes["step"] == 3 and one.status == ("ERROR" if uid == "uid-raises" else "OK"), (uid, rollout)


def test_sessions_of_every_gateway_are_recorded(told: Told) -> None:
    _, sessions = told
    assert len({turn.pid for one in sessions.values() for turn in one.llm_spans}) == 2


KINDS = {
    "linear": [[2]], "compaction": [[3], [3, COMPACTION]], "best_of": [[1], [2, BEST_OF]],
    "react": [[1]], "mini": [[2]], "long": [[9]],
    "rewrite": [[2], [2, REWRITE]], "crash": [[1]], "hang": [[1]], "raises": [],
    "subagents": [[1, SUB_AGENT], [2], [2, SUB_AGENT], [2, SUB_AGENT]],
}  # fmt: skip
"""Flow -> of each chain, how many turns it has, and why it leaves another one."""


def test_histories_come_back_as_trees(told: Told) -> None:
    for (uid, _), one in told[1].items():
        chains = tree_of(one).chains
        made = [[len(path(chains, chain)), *([chain.kind] if chain.kind else [])] for chain in chains]
        assert sorted(map(str, made)) == sorted(map(str, KINDS[uid.removeprefix("uid-")])), uid


def test_each_chain_is_the_row_that_the_trainer_has(told: Told) -> None:
    rows, sessions = told
    made = [row for row in reading.tables([*sessions.values()])["chains"].to_pylist() if row["row"] is not None]
    assert len(made) == len(rows)
    for row in made:
        expected = rows[row["uid"], row["rollout_n"], row["row"]]
        assert row["trained"] == expected["trained"]
        assert row["reward"] == expected["reward"]
        assert row["advantage"] == pytest.approx(expected["advantage"], abs=1e-4)


def test_the_receipt_says_what_no_row_has(told: Told) -> None:
    for (uid, rollout), one in told[1].items():
        receipt = words(one)
        if uid == "uid-rewrite":
            assert receipt == "199 generated, 105 in 1 row, 94 in none (94 rewrite)", rollout
        elif uid != "uid-raises":
            assert receipt and "none" not in receipt, uid


def test_findings_are_those_of_the_flows_that_went_wrong(told: Told) -> None:
    wrong = {"crash": ["AT-SESSION-DIED"], "hang": ["AT-SESSION-DIED"], "raises": ["AT-ROLLOUT-FAILED"],
             "long": ["AT-TRUNCATED"], "rewrite": ["AT-ANSWER-FOREIGN"]}  # fmt: skip
    for (uid, _), one in told[1].items():
        marks = [mark.code for mark in examine(one, TrainerSettings()).marks]
        assert marks == wrong.get(uid.removeprefix("uid-"), []), uid
