"""Branches: those that are meant have no finding, and what training lost or mixed up of them has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.insight.families.chains import died_later, others_reward, rows
from autotrace.insight.families.mismatch import place
from autotrace.insight.step_records import History, Hit, Record
from autotrace.trajectory.chains import BEST_OF, COMPACTION, RETRY, REWRITE, SUB_AGENT, tree_of
from autotrace.trajectory.model import Span, Trajectory
from tests.insight.made import TrainerSettings, marks, record, span, step
from tests.trajectory.test_chains import (
    ANSWER,
    BEGUN,
    FIRST,
    GONE_ON,
    LAST,
    OTHER,
    PROMPT,
    REWRITTEN,
    SECOND,
    SUMMARY,
    TOOL,
    tokens,
)

SHORT, SUB = [7] * 17, [9, *range(600, 640)]
SUBS: list[dict[str, Any]] = [OTHER, {"role": "user", "content": "Sub."}, {"role": "assistant", "content": "Fine."}]
SAID = [BEGUN, SUBS, SUBS, GONE_ON]


def retried() -> Trajectory:
    one = tokens(FIRST, (PROMPT, LAST))
    one.llm_spans[0].status = "ERROR"
    return one


PLANTED: dict[str, Callable[[], Trajectory]] = {
    SUB_AGENT: lambda: tokens(
        FIRST, (SUB, LAST), ([*SUB[:-2], 8, 8], LAST), SECOND, messages=[BEGUN, SUBS, SUBS, GONE_ON]
    ),
    COMPACTION: lambda: tokens(FIRST, (SECOND[0], SUMMARY), ([*PROMPT[:10], *SUMMARY, 3], LAST)),
    REWRITE: lambda: tokens(
        FIRST, ([*PROMPT, *ANSWER[:8], 1, *ANSWER[10:], *TOOL], SHORT), messages=[BEGUN, REWRITTEN]
    ),
    RETRY: retried,
    BEST_OF: lambda: tokens(FIRST, (PROMPT, SUMMARY), (PROMPT + SUMMARY + TOOL, LAST)),
}
"""Kind -> a trajectory that has such a branch."""


def returned(one: Trajectory, turns: list[int]) -> Trajectory:
    """The agent returns the chain of these turns: their answers, and what stood between them, which is masked."""
    spans = [one.llm_spans[turn - 1] for turn in turns]
    ids, mask = list[int](), list[int]()
    for at in spans:
        gap = (at.prompt_ids or [])[(spans[0].prompt_tokens or 0) + len(ids) :]
        ids += [*gap, *(at.response_ids or [])]
        mask += [0] * len(gap) + [1] * len(at.response_ids or [])
    one.root.response_ids, one.root.response_mask, one.root.response_tokens = ids, mask, len(ids)
    return one


@pytest.mark.parametrize("kind", PLANTED)
def test_a_branch_that_is_meant_has_no_finding(kind: str) -> None:
    made = PLANTED[kind]
    chains = tree_of(made()).chains
    assert kind in [chain.kind for chain in chains]
    for turns in tree_of(made()).paths():  # whichever chain it returns
        assert marks(returned(made(), turns)) == [], turns


def of_step(one: Trajectory, **facts: Any) -> list[Hit]:
    """What a step shows of it, with ``facts``; ``_`` in a name stands for the dot."""
    profile = examine(one, TrainerSettings())
    named = {name.replace("_of_", "."): value for name, value in facts.items()}
    line: Record = record(turns=profile.turns, facts=named)
    line.profile = profile
    found = step([line], adv_estimator="grpo")
    return [*rows(found, History()), *others_reward(found, History())]


def row(tokens: int) -> dict[str, Any]:
    return {"tokens": tokens}


def test_what_is_in_no_row_is_dropped() -> None:
    one = PLANTED[REWRITE]()
    (hit,) = of_step(one, advantage=0.5, token_facts=row(17))
    assert (hit.code, hit.turn, hit.kind) == ("AT-TOKENS-DROPPED", 1, REWRITE)
    assert hit.note == "30 of 47 generated tokens (30 rewrite)"


def test_nothing_is_dropped_where_each_chain_has_a_row_or_it_is_not_known() -> None:
    assert of_step(PLANTED[BEST_OF](), token_facts=row(30), token_facts_of_1=row(60)) == []
    assert of_step(PLANTED[BEST_OF]()) == []
    assert of_step(PLANTED[BEST_OF](), advantage=0.5) == [], "which chain it is"
    assert of_step(PLANTED[BEST_OF](), token_facts=row(30), token_facts_of_1=row(61)) == [], "which has the second row"
    assert of_step(PLANTED[SUB_AGENT](), token_facts=row(60)) == [], "sub-agents, of which none is trained"
    assert of_step(tokens(FIRST, SECOND), token_facts=row(17)) == [], "a line that was cut"


def test_a_sub_agent_without_a_row_is_dropped_where_others_have_one() -> None:
    (hit,) = of_step(PLANTED[SUB_AGENT](), token_facts=row(30), token_facts_of_1=row(60))
    assert (hit.code, hit.kind, hit.turn) == ("AT-TOKENS-DROPPED", SUB_AGENT, 3)


def test_a_history_that_two_rows_share_is_trained_on_twice() -> None:
    one = tokens(FIRST, SECOND, (PROMPT + ANSWER + [9, 9, 9], [7] * 17))
    (hit,) = of_step(one, token_facts=row(60), token_facts_of_1=row(47))
    assert (hit.code, hit.turn, hit.note) == ("AT-TOKENS-TWICE", 1, "30 generated tokens, up to 2 times")
    assert of_step(one, token_facts=row(60), token_facts_of_1=row(17)) == [], "masked in the second row"


@pytest.mark.parametrize(
    ("advantages", "found"), [((0.7, 0.7), True), ((-0.7, 0.7), True), ((0.7, -0.7), False), ((0.7, None), False)]
)
def test_a_branch_with_the_reward_of_another(advantages: tuple[float, float | None], found: bool) -> None:
    facts: dict[str, Any] = {"token_facts": row(30), "token_facts_of_1": row(60), "reward": 1.0, "reward_of_1": 0.0}
    hits = of_step(PLANTED[BEST_OF](), advantage=advantages[0], advantage_of_1=advantages[1], **facts)
    assert [hit.code for hit in hits] == ["AT-BRANCH-REWARD"] * found


def of_session(facts: dict[str, Any], status: str = "OK", **output: Any) -> Trajectory:
    root = span("trajectory", None, output=None)
    root.response_ids, root.response_mask = ANSWER, [1] * len(ANSWER)
    agent: Span = span("agent", root.span_id, 1, output=output or None, status=status)
    return Trajectory("t" * 32, "run", [root, agent], {"step": 1}, facts)


def session(reward: float, status: str = "OK", **output: Any) -> list[str]:
    one = of_session({"reward": reward}, status, **output)
    return [code for code, _, _ in marks(one) if code == "AT-SESSION-DIED"]


def test_a_session_that_died_and_is_trained_on() -> None:
    died: dict[str, Any] = {"finished": False, "info": {"exit_code": 9, "stderr": "Killed"}}
    assert session(0.0, **died) == session(0.0, "TIMEOUT") == session(0.0, exit_code=-1) == ["AT-SESSION-DIED"]
    assert session(1.0, **died) == session(0.0, finished=True, exit_code=1) == session(0.0, exit_code=0) == []
    assert session(0.0, finished=False) == [], "out of turns"


def test_a_session_that_died_shows_once_its_reward_is_known() -> None:
    profile = examine(of_session({}, exit_code=9), TrainerSettings())
    assert "AT-SESSION-DIED" not in [mark.code for mark in profile.marks]
    records = [
        replace(record(number, reward=reward), profile=profile) for number, reward in enumerate((None, 1.0, 0.0))
    ]
    assert [(hit.code, hit.record, hit.note) for hit in died_later(step(records), History())] == [
        ("AT-SESSION-DIED", records[2], "exit code 9")
    ]


def test_a_token_of_the_first_row_is_found_in_its_chain() -> None:
    profile = examine(PLANTED[BEST_OF](), TrainerSettings())
    line = record(turns=profile.turns, facts={"token_facts": row(60)})
    line.profile = profile
    assert place(line, len(SUMMARY) + len(TOOL) + 3) == (3, 3)
