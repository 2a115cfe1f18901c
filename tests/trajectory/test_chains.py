"""The tree of a trajectory's turns: paths are recovered from what is recorded, branches say why, lines stay lines."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotrace.export.atif import row_of
from autotrace.ship.assembly.decoding import without_token_ids
from autotrace.tables.rebuild import rebuilt
from autotrace.trajectory.chains import BEST_OF, COMPACTION, RESTART, RETRY, REWRITE, SUB_AGENT, path, tree_of
from autotrace.trajectory.divergence import parted
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.receipt import answered_path, receipt_of, whole_response, words
from tests.insight.made import llm, span, trajectory
from tests.ship.assembly.test_conversation import assembled, ids, recorded
from tests.tables import reading

SYSTEM, OTHER = {"role": "system", "content": "You are the agent."}, {"role": "system", "content": "You are a helper."}


def shape(one: Trajectory) -> list[tuple[str | None, int, list[int]]]:
    """Of each chain: why it begins, after which turn, and all of its turns."""
    chains = tree_of(one).chains
    return [(chain.kind, chain.after, path(chains, chain)) for chain in chains]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[list[int], list[int]]], list[int]]:
    """Calls, each of which goes on from the end of an earlier one or begins anew; and which one, 0 for none. No two
    say the same."""
    fresh = itertools.count(1_000)
    wholes: list[list[int]] = [[]]
    calls, befores = [], []
    for number in range(1, draw(st.integers(1, 7)) + 1):
        before = draw(st.integers(0, number - 1))
        prompt = [*wholes[before], *itertools.islice(fresh, draw(st.integers(1, 30)))]
        answer = [*itertools.islice(fresh, draw(st.integers(1, 30)))]
        calls.append((prompt, answer))
        befores.append(before)
        wholes.append(prompt + answer)
    return calls, befores


@given(histories())
def test_paths_are_recovered_from_what_is_recorded(made: tuple[list[tuple[list[int], list[int]]], list[int]]) -> None:
    calls, befores = made
    one = assembled(recorded(calls))
    (stored,) = rebuilt(reading.in_rows([one]))
    agent = span("agent", None)
    bare = trajectory(agent, *(llm(agent.span_id, 2 * n, *call) for n, call in enumerate(calls, 1)))
    for each in (one, stored, bare):  # the last one: nothing says which prompt goes on from which
        assert tree_of(each).before[1:] == befores
        assert not tree_of(each).changed
        leaves = {*range(1, len(calls) + 1)} - {*befores}
        assert {path(tree_of(each).chains, chain)[-1] for chain in tree_of(each).chains} == leaves
        kinds = [chain.kind for chain in tree_of(each).chains]
        assert kinds[0] is None and {*kinds[1:]} <= {REWRITE, RESTART}
    rows = reading.tables([one])
    assert [tuple(row[name] for name in ("chain", "kind", "turns")) for row in rows["chains"].to_pylist()] == [
        (chain.number, chain.kind, len(chain.turns)) for chain in tree_of(one).chains
    ]
    assert [row["chain"] for row in rows["turns"].to_pylist() if row["own"]] == tree_of(one).of[1:]


def test_a_line_is_one_chain_also_without_its_tokens() -> None:
    prompt, calls = ids("Begin. "), []
    for said in ("One. ", "Two. ", "Three. "):
        calls.append((prompt, ids(said)))
        prompt = prompt + ids(said) + ids("Go on. ")
    one = assembled(recorded(calls))
    assert shape(one) == [(None, 0, [1, 2, 3])]
    assert reading.tables([one])["trajectories"]["chains"].to_pylist() == [None]
    bare = assembled(recorded(calls))
    without_token_ids(bare)
    assert shape(bare) == shape(one)


PROMPT, ANSWER, TOOL, LAST = [*range(100, 140)], [*range(200, 230)], [*range(300, 320)], [*range(400, 430)]
SUMMARY = [*range(500, 530)]


def tokens(*calls: tuple[list[int], list[int]], messages: Any = ()) -> Trajectory:
    """Turns as they are recorded, one after the other, with ``messages`` for some of them."""
    one = assembled(recorded([*calls]))
    for turn, said in zip(one.llm_spans, messages, strict=False):
        turn.messages = said
    return one


FIRST = (PROMPT, ANSWER)
SECOND = (PROMPT + ANSWER + TOOL, LAST)
BEGUN = [SYSTEM, {"role": "user", "content": "Do it."}, {"role": "assistant", "content": "I look."}]
REWRITTEN = [*BEGUN[:2], {"role": "assistant", "content": "No."}, {"role": "tool", "content": "3"}]
RECENT = [*BEGUN[:2], {"role": "user", "content": "So far: It is done and counted."}, BEGUN[2]]
GONE_ON = [*BEGUN, {"role": "tool", "content": "3"}, {"role": "assistant", "content": "It is done."}]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (tokens(FIRST, (PROMPT, [7, 8, 9])), (BEST_OF, 0, [2])),
        (tokens(FIRST, SECOND, (SECOND[0], [7, 8, 9])), (BEST_OF, 1, [1, 3])),
        (tokens(FIRST, SECOND, (PROMPT + ANSWER + [9, 9, 9], [7])), (REWRITE, 1, [1, 3])),
        (tokens(FIRST, ([*PROMPT, 9, 9, 9], [7])), (None, 0, [1, 2])),  # an answer that was written anew
        (tokens(FIRST, ([*PROMPT, 9, 9, 9], [7]), messages=[BEGUN, REWRITTEN]), (REWRITE, 0, [2])),
        (tokens(FIRST, (SECOND[0], SUMMARY), ([*PROMPT[:10], *SUMMARY, 3], [7])), (COMPACTION, 2, [3])),
        (tokens(FIRST, (SECOND[0], SUMMARY), ([*PROMPT, *SUMMARY, 3], [7]), messages=[BEGUN, GONE_ON, BEGUN[:2]]),
         (COMPACTION, 2, [3])),
        (tokens(FIRST, (SECOND[0], SUMMARY), ([*PROMPT, 9, *SUMMARY, *LAST], [7]), messages=[BEGUN, GONE_ON, RECENT]),
         (COMPACTION, 2, [3])),  # with the last messages of what it replaces
        (tokens(FIRST, ([1, 2, 3], [7])), (RESTART, 1, [2])),
        (tokens(FIRST, ([1, 2, 3], [7]), messages=[BEGUN, [OTHER, {"role": "user", "content": "Sub."}]]),
         (SUB_AGENT, 1, [2])),
    ],
)  # fmt: skip
def test_a_branch_says_why_it_is_one(made: Trajectory, expected: tuple[str | None, int, list[int]]) -> None:
    assert shape(made)[-1] == expected


def test_a_call_that_failed_is_made_again() -> None:
    one = tokens(FIRST, (PROMPT, [7, 8, 9]))
    one.llm_spans[0].status = "ERROR"
    assert shape(one)[-1] == (RETRY, 0, [2])


def test_the_agent_itself_is_the_one_that_lasts() -> None:
    title = [{"role": "user", "content": "A title?"}]
    begun = [SYSTEM, {"role": "user", "content": "Do it."}]
    one = tokens(([1, 2, 3], [7]), FIRST, SECOND, ([4, 5], [6]), messages=[title, begun, GONE_ON, [OTHER]])
    assert shape(one) == [(SUB_AGENT, 0, [1]), (None, 0, [2, 3]), (SUB_AGENT, 3, [4])]
    assert tree_of(one).chains[0].parent == 1


def test_a_branch_of_a_sub_agent_leaves_that() -> None:
    sub = [OTHER, {"role": "user", "content": "Sub."}]
    one = tokens(FIRST, ([4, 5], [6] * 9), ([4, 5], [7] * 9), SECOND, messages=[BEGUN, sub, sub, GONE_ON])
    assert [(chain.kind, chain.parent) for chain in tree_of(one).chains] == [(None, None), (SUB_AGENT, 0), (BEST_OF, 1)]


def test_a_sub_agent_leaves_the_turn_that_waits_for_it() -> None:
    title, sub = [{"role": "user", "content": "A title?"}], [OTHER, {"role": "user", "content": "Sub."}]
    one = tokens(FIRST, ([1, 2, 3], [7]), ([4, 5], [6] * 9), SECOND, messages=[BEGUN, title, sub, GONE_ON])
    assert shape(one)[1:] == [(SUB_AGENT, 1, [2]), (SUB_AGENT, 1, [3])]


def test_chains_are_compared_with_chains() -> None:
    sub = [OTHER, {"role": "user", "content": "Sub."}]
    line = tokens(FIRST, SECOND, messages=[BEGUN, GONE_ON])
    helped, otherwise = (
        tokens(FIRST, ([1, 2, 3], [answer]), SECOND, messages=[BEGUN, sub, GONE_ON]) for answer in (7, 8)
    )
    for one, other, expected in (
        (line, line, None), (helped, helped, None), (line, helped, (2, "end")), (helped, line, (2, "end")),
        (helped, otherwise, (2, "answer")),
    ):  # fmt: skip
        where = parted(one, other)
        assert (None if where is None else (where.turn, where.part)) == expected


def said(*turns: list[dict[str, Any]]) -> Trajectory:
    """Turns of which only the messages are known."""
    spans = [span("llm", None, number, messages=messages) for number, messages in enumerate(turns, 1)]
    return trajectory(*spans)


def test_by_messages() -> None:
    other = [OTHER, {"role": "user", "content": "Sub."}, {"role": "assistant", "content": "Fine."}]
    assert shape(said(BEGUN, GONE_ON)) == [(None, 0, [1, 2])]
    assert shape(said(BEGUN, other, GONE_ON)) == [(None, 0, [1, 3]), (SUB_AGENT, 1, [2])]
    assert shape(said(BEGUN, [*BEGUN[:2], {"role": "assistant", "content": "Or so."}])) == [
        (None, 0, [1]), (BEST_OF, 0, [2]),
    ]  # fmt: skip
    again = [*GONE_ON[:3], {"role": "user", "content": "Otherwise."}]
    assert shape(said(BEGUN, GONE_ON, again)) == [(None, 0, [1, 2]), (REWRITE, 1, [1, 3])]
    anew = [SYSTEM, {"role": "user", "content": "So far: It is done and counted."}]
    summary = [
        *GONE_ON,
        {"role": "user", "content": "Sum up."},
        {"role": "assistant", "content": "It is done and counted."},
    ]
    assert shape(said(BEGUN, GONE_ON, summary, anew))[-1] == (COMPACTION, 3, [4])
    recent = [*anew, *GONE_ON[-2:], {"role": "user", "content": "Go on."}, {"role": "assistant", "content": "I do."}]
    gone_on = [*recent, {"role": "user", "content": "?"}, {"role": "assistant", "content": "Yes."}]
    assert shape(said(BEGUN, GONE_ON, summary, recent, gone_on))[-1] == (COMPACTION, 3, [4, 5])
    quoted = [*GONE_ON[:3], {"role": "user", "content": "It is done and counted. Wrong!"}, GONE_ON[-1]]
    assert shape(said(BEGUN, GONE_ON, summary, quoted))[-1] == (REWRITE, 1, [1, 4])


def test_a_window_that_slides_over_quoted_answers_is_no_compaction() -> None:
    exchanges: list[list[dict[str, Any]]] = []
    turns, seen = [], "Find the pen."
    for number in range(12):
        asked, answer = {"role": "user", "content": seen}, f"I look at place number {number}."
        exchanges.append([asked, {"role": "assistant", "content": answer}])
        turns.append([SYSTEM, *(message for exchange in exchanges[-4:] for message in exchange)])
        seen = f"You did: {answer} There is nothing."
    assert shape(said(*turns)) == [(None, 0, [*range(1, 13)])]


@pytest.mark.parametrize("first", [2, 4])
def test_a_summary_after_the_first_messages_is_a_compaction(first: int) -> None:
    """As condensers of agents keep the beginning, too."""
    history, turns = [SYSTEM, {"role": "user", "content": "Fix it."}], []
    for number in range(5):
        call = {"role": "assistant", "content": f"I run command number {number}."}
        turns.append([*history, call])
        history = [*history, call, {"role": "tool", "content": str(number)}]
    summed_up = "Commands 1 to 3 were run."
    turns.append([OTHER, {"role": "user", "content": "Sum up."}, {"role": "assistant", "content": summed_up}])
    history = [*history[:first], {"role": "user", "content": f"So far: {summed_up}"}, *history[-2:]]
    turns.append([*history, {"role": "assistant", "content": "I am done with it."}])
    turns.append([*turns[-1], {"role": "user", "content": "?"}, {"role": "assistant", "content": "Yes."}])
    assert shape(said(*turns))[-1] == (COMPACTION, 6, [7, 8] if first == 2 else [1, 7, 8])


@pytest.mark.parametrize(
    "second",
    [
        [{"role": "tool", "content": "3"}],  # what is new alone
        [*BEGUN[:2], {"role": "assistant", "content": "look"}, {"role": "tool", "content": "3"}],  # sent again in part
        [SYSTEM, *BEGUN[2:], {"role": "user", "content": "Go on."}],  # a window that slides
    ],
)
def test_messages_that_may_be_a_line_are_one(second: list[dict[str, Any]]) -> None:
    assert shape(said(BEGUN, second, [*second, {"role": "user", "content": "?"}]))[0][2] == [1, 2, 3]


def test_the_receipt_of_training() -> None:
    one = tokens(FIRST, SECOND, (PROMPT + ANSWER + [9, 9, 9], [7] * 17))
    assert receipt_of(one) is None and words(one) == ""
    one.facts |= {"advantage": 0.5, "token_facts": {"tokens": 47, "rejected": 2, "clipped": 3}}
    assert words(one) == "77 generated, 47 in 1 row, 30 in none (30 rewrite), 3 of the rows' with a clipped weight"
    first, second = reading.tables([one])["chains"].to_pylist()
    names = ("tokens", "in_rows", "row", "trained", "clipped", "advantage")
    assert [first[name] for name in names] == [60, 30, None, None, None, None]
    assert [second[name] for name in names] == [17, 17, 0, 45, 3, 0.5]
    one.facts |= {"advantage.1": 0.5, "token_facts.1": {"tokens": 1234}}
    in_rows = "77 generated, 47 in 1 row, 30 in rows that are not known (30 rewrite)"
    assert words(one) == f"{in_rows}, 3 of the rows' with a clipped weight"


def test_rows_that_a_call_returned_count_until_the_trainer_reports() -> None:
    one = tokens(FIRST, SECOND, (PROMPT + ANSWER + [9, 9, 9], [7] * 17))
    one.facts |= {"row_tokens": 47, "reward": 0.25, "row_tokens.1": 60, "reward.1": 1.0}
    assert words(one) == "77 generated, 77 in 2 rows"
    rows = reading.tables([one])["chains"].to_pylist()
    assert [(row["row"], row["reward"], row["in_rows"]) for row in rows] == [(1, 1.0, 60), (0, 0.25, 17)]
    one.facts |= {"advantage": 0.5, "token_facts": {"tokens": 47}}
    assert words(one) == "77 generated, 47 in 1 row, 30 in none (30 rewrite)"


def test_of_equal_chains_the_rows_are_in_the_order_of_their_ends() -> None:
    one = tokens(FIRST, (PROMPT, [7] * 30), (PROMPT, [8] * 17), (PROMPT, [9] * 30))
    assert len(tree_of(one).chains) == 4
    for counts, expected in (
        ((17, 30, 30, 30), {2: 0, 3: 1, 0: 2, 1: 3}),
        ((30, 30, 17, 30), {0: 0, 1: 1, 2: 2, 3: 3}),
    ):
        one.facts = {f"row_tokens.{row}" if row else "row_tokens": count for row, count in enumerate(counts)}
        told = receipt_of(one)
        assert told is not None and told.row == expected
        one.facts = {name.replace("row_tokens", "token_facts"): {"tokens": n} for name, n in one.facts.items()}
        told = receipt_of(one)
        assert told is not None and told.row == expected


def branched(**facts: Any) -> Trajectory:
    """Two chains of 60 and 47 tokens, and facts about their rows."""
    one = tokens(FIRST, SECOND, (PROMPT + ANSWER + [9, 9, 9], [7] * 17))
    one.facts |= {name.replace("_1", ".1").replace("_2", ".2"): value for name, value in facts.items()}
    return one


def test_nothing_is_dropped_where_a_row_is_not_known() -> None:
    known = branched(row_tokens=60, returned_rows=2)
    assert words(known) == "77 generated, 60 in 1 row, 17 in rows that are not known (17 rewrite)"


def test_one_advantage_of_the_trajectory_hides_no_returned_row() -> None:
    assert words(branched(row_tokens=60, row_tokens_1=47, advantage=0.5)) == "77 generated, 77 in 2 rows"


def test_of_two_calls_that_return_rows_the_last_one_counts() -> None:
    told = receipt_of(branched(row_tokens=47, row_tokens_1=60, row_tokens_2=5, returned_rows=1))
    assert told is not None and (told.row, told.total) == ({1: 0}, 1)


def test_the_last_row_is_the_response_and_no_row_is_the_agent() -> None:
    """The trainer's values for each token are those of the last row, too."""
    one = tokens(FIRST, (PROMPT, [7, 8, 9]))
    one.root.role = "trajectory"
    rows = [span("agent", one.root.span_id, 9, name="row", attributes={"row": row}) for row in range(2)]
    rows[0].response_ids, rows[1].response_ids = ANSWER, [7, 8, 9]
    one.spans += rows
    assert whole_response(one.spans) is rows[1]
    assert answered_path(one, rows[1]) == [2]
    exported = row_of(one)
    assert not isinstance(exported, str) and exported[1]["agent"]["name"] == one.root.name


def test_an_answer_without_tokens_hides_no_row() -> None:
    """As a gateway gives where the context is full."""
    one = tokens(FIRST, SECOND, (SECOND[0] + LAST + TOOL, [7]))
    one.llm_spans[-1].response_tokens = None
    one.facts |= {"row_tokens": 60, "returned_rows": 1}
    assert words(one) == "60 generated, 60 in 1 row"


@pytest.mark.parametrize("count", [-5, 10**30, float("nan"), "many", None, {}, True])
def test_numbers_of_rows_that_are_none_are_no_chain(count: Any) -> None:
    line = tokens(FIRST, SECOND)
    line.facts |= {"row_tokens": count, "row_tokens.999999": count}
    told = receipt_of(line)
    assert told is None or told.row == {}
    assert words(line) == ""


def test_the_receipt_of_a_line() -> None:
    one = tokens(FIRST, SECOND)
    one.facts |= {"advantage": 0.5, "reward": 1.0}
    (chain,) = reading.tables([one])["chains"].to_pylist()
    assert (chain["tokens"], chain["in_rows"], chain["row"], chain["reward"]) == (60, 60, 0, 1.0)


def test_a_strangers_profile_cannot_hold_anybody_up() -> None:
    from autotrace.trajectory.chains import Chain

    circle = [Chain(0, None, 0, None, [1], 2), Chain(1, 0, 1, REWRITE, [2], 1)]
    assert len(path(circle, circle[0])) < 9


def test_turns_that_nothing_is_known_about_are_a_line() -> None:
    spans = [Span(f"{n:016x}", None, "call", "llm", "k", n, n + 1, "OK") for n in range(1, 9)]
    assert shape(trajectory(*spans)) == [(None, 0, [*range(1, 9)])]
