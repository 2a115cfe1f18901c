"""Prompts that do not continue, masks: what fires, and what resembles it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.insight.made import TrainerSettings, llm, marks, record, span, step, trajectory

PROMPT, ANSWER, TOOL = list(range(100, 120)), list(range(200, 230)), [7, 8, 9]


def two_turns(second: list[int]) -> list[tuple[str, int | None, int | None]]:
    agent = span("agent", None)
    first = llm(agent.span_id, 1, PROMPT, ANSWER)
    return marks(trajectory(agent, first, llm(agent.span_id, 2, second, [5])))


def test_a_prompt_that_goes_on_is_none() -> None:
    agent = span("agent", None)
    first = llm(agent.span_id, 1, PROMPT, ANSWER)
    second = llm(agent.span_id, 2, PROMPT + ANSWER + TOOL, [5], first)
    assert marks(trajectory(agent, first, second)) == []


def test_the_first_token_that_differs_is_named() -> None:
    changed = PROMPT + ANSWER[:12] + [999] + ANSWER[13:] + TOOL
    assert two_turns(changed) == [("AT-RETOKENIZED", 2, len(PROMPT) + 12)]


def test_thinking_that_was_left_out_is_told_from_other_changes() -> None:
    assert two_turns(PROMPT + ANSWER[9:] + TOOL) == [("AT-THINKING-STRIPPED", 2, len(PROMPT))]


@pytest.mark.parametrize(
    "second",
    [
        [1, 2, 3, 4, 5, 6],  # begins anew
        PROMPT,  # asked again
        [*PROMPT, *ANSWER[:-1], 55, *TOOL],  # the end of the turn is written otherwise
        [*PROMPT[:6], *range(500, 560)],  # another agent, whose system prompt begins alike
    ],
)
def test_what_resembles_it_is_none(second: list[int]) -> None:
    assert two_turns(second) == []


def three_turns(third: list[int], first: list[int] = PROMPT) -> list[tuple[str, int | None, int | None]]:
    between = list(range(300, 320))
    agent = span("agent", None)
    one = llm(agent.span_id, 1, first, ANSWER)
    two = llm(agent.span_id, 2, first + ANSWER + between, SECOND, one)
    return marks(trajectory(agent, one, two, llm(agent.span_id, 3, third, [5])))


SECOND = list(range(400, 430))


def test_a_history_that_was_edited() -> None:
    between = list(range(300, 320))
    slid = PROMPT + SECOND + TOOL
    assert three_turns(slid) == [("AT-RETOKENIZED", 3, len(PROMPT))]
    omitted = PROMPT + ANSWER + [11] + SECOND + TOOL
    assert three_turns(omitted) == [("AT-RETOKENIZED", 3, len(PROMPT + ANSWER))]
    clock = [*PROMPT[:3], 99, *PROMPT[4:], *ANSWER, *between, *SECOND, *TOOL]
    assert three_turns(clock) == [("AT-RETOKENIZED", 3, 3)]
    assert three_turns(PROMPT + list(range(500, 560))) == [], "another branch"
    assert three_turns([*range(600, 640), *SECOND, *TOOL]) == [], "another prompt about the same answer"


def test_of_several_samples_each_begins_as_it_likes() -> None:
    stripped = PROMPT + ANSWER[9:] + TOOL
    for returned, found in (([{}, {}], []), ([{}], ["AT-THINKING-STRIPPED"]), ({}, ["AT-THINKING-STRIPPED"])):
        agent = span("agent", None, output=returned)
        agent.response_ids = [5]
        first = llm(agent.span_id, 1, PROMPT, ANSWER)
        one = trajectory(agent, first, llm(agent.span_id, 2, stripped, [5]))
        assert [code for code, _, _ in marks(one)] == found


@pytest.mark.parametrize(("rows", "found"), [(1, ["AT-THINKING-STRIPPED"]), (2, [])])
def test_of_several_rows_each_begins_as_it_likes(rows: int, found: list[str]) -> None:
    root = span("trajectory", None)
    turns = llm(root.span_id, 1, PROMPT, ANSWER), llm(root.span_id, 2, PROMPT + ANSWER[9:] + TOOL, [5])
    returned = [span("agent", root.span_id, 3, attributes={"row": row}) for row in range(rows)]
    for one in returned:
        one.response_ids = [5]
    assert [code for code, _, _ in marks(trajectory(root, *turns, *returned))] == found


@pytest.mark.parametrize(
    ("response", "mask", "expected"),
    [
        (ANSWER + [50] * 10 + SECOND, [1] * 30 + [0] * 10 + [1] * 30, []),
        (ANSWER + [50] * 10 + [77] * 25, [1] * 30 + [0] * 10 + [1] * 25, [("AT-RESPONSE-CHANGED", 2, 40)]),
        ([77] * 25 + [50] * 10 + SECOND, [1] * 25 + [0] * 10 + [1] * 30, [("AT-RESPONSE-CHANGED", 1, 0)]),
        (ANSWER + [50] * 10 + [77] * 25, [1] * 30 + [0] * 35, []),  # left out of the loss
        (SECOND, [1] * 30, []),  # some of its turns
        (ANSWER + [50] * 10 + SECOND[:12], [1] * 30 + [0] * 10 + [1] * 12, []),  # cut
    ],
)
def test_an_answer_that_was_changed(response: list[int], mask: list[int], expected: list[Any]) -> None:
    agent = span("agent", None)
    agent.response_ids, agent.response_mask = response, mask
    first = llm(agent.span_id, 1, PROMPT, ANSWER)
    second = llm(agent.span_id, 2, PROMPT + ANSWER + [50] * 10, SECOND, first)
    assert marks(trajectory(agent, first, second)) == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([*ANSWER[:12], 999, *ANSWER[13:]], [("AT-RETOKENIZED", 2, 32)]),  # as in the second prompt
        (ANSWER[9:], [("AT-RETOKENIZED", 2, 32), ("AT-RESPONSE-CHANGED", 1, 0)]),  # otherwise than there
    ],
)
def test_an_agent_that_renders_its_answers_anew_is_told_so_once(returned: list[int], expected: list[Any]) -> None:
    agent, between = span("agent", None), list(range(50, 60))
    agent.response_ids = returned + between + SECOND
    agent.response_mask = [1] * len(returned) + [0] * 10 + [1] * 30
    first = llm(agent.span_id, 1, PROMPT, ANSWER)
    second = llm(agent.span_id, 2, PROMPT + ANSWER[:12] + [999] + ANSWER[13:] + between, SECOND)
    assert marks(trajectory(agent, first, second)) == expected


def of_mask(mask: list[int]) -> list[tuple[str, int | None, int | None]]:
    """Two turns of 30 and 4 tokens around 10 of a tool."""
    between, last = list(range(50, 60)), [1, 2, 3, 4]
    agent = span("agent", None)
    agent.response_ids, agent.response_mask = ANSWER + between + last, mask
    first = llm(agent.span_id, 1, PROMPT, ANSWER)
    return marks(trajectory(agent, first, llm(agent.span_id, 2, PROMPT + ANSWER + between, last, first)))


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1] * 30 + [0] * 10 + [1] * 4, []),
        ([1] * 33 + [0] * 7 + [1] * 4, []),
        ([0] * 30 + [0] * 10 + [1] * 4, []),
        ([1] * 44, [("AT-MASK-TOOL-TOKENS", 1, 30)]),
        ([0] * 44, [("AT-MASK-EMPTY", None, None)]),
        ([1] * 43, [("AT-MASK-INVALID", None, None)]),
        ([0] + [1] * 30 + [0] * 10 + [1] * 3, [("AT-MASK-INVALID", 1, 0)]),
    ],
)
def test_a_mask_against_its_turns(mask: list[int], expected: list[tuple[str, int | None, int | None]]) -> None:
    assert of_mask(mask) == expected


def test_a_prompt_of_the_greatest_length_that_begins_as_the_others_is_whole() -> None:
    from autotrace.insight.families.tokens import prompt_cut
    from autotrace.insight.step_records import History
    from tests.insight.made import TurnProfile

    usual = [record(n, f"1/{n}", head=[1, 2], turns=[TurnProfile(100 - (n > 0) * n)]) for n in range(6)]
    cut = record(9, "1/9", head=[77, 78], turns=[TurnProfile(100)])
    hits = list(prompt_cut(step([*usual, cut], prompt_length=100), History()))
    assert [(hit.record.trace_id, hit.turn) for hit in hits] == [(cut.trace_id, 1)]


def test_prompts_of_one_length_that_all_begin_differently_are_whole() -> None:
    from autotrace.insight.families.tokens import prompt_cut
    from autotrace.insight.step_records import History
    from tests.insight.made import TurnProfile

    records = [record(n, f"1/{n}", head=[n, n + 1], turns=[TurnProfile(500)]) for n in range(8)]
    assert list(prompt_cut(step(records), History())) == []


def test_an_answer_lacks_an_end_token_where_end_tokens_are_known() -> None:
    from autotrace.insight.families.tokens import no_end
    from autotrace.insight.step_records import History
    from tests.insight.made import TurnProfile

    ended = [record(n, turns=[TurnProfile(4, 10, None, 2)]) for n in range(20)]
    odd = record(30, turns=[TurnProfile(4, 10, None, 99)])
    cut = record(31, turns=[TurnProfile(4, 10, "length", 98)])
    for settings, found in (({"end_tokens": frozenset({2})}, [odd.trace_id]), ({}, [])):
        hits = list(no_end(step([*ended, odd, cut], **settings), History()))
        assert [hit.record.trace_id for hit in hits] == found


def test_the_length_of_a_context_is_the_one_that_the_engine_resolved() -> None:
    config = ("config", {"max_model_len": None})
    for binds, length in (
        ([config, ("engine", {"max_model_len": 4096})], 4096),
        ([("engine", {"max_model_len": 4096}), ("config", {"max_model_len": 8192})], 4096),
        ([config, ("engine", {"max_model_len": 4096}), ("engine", {"max_model_len": 512})], None),
        ([config, ("engine", {"max_model_len": "much"})], None),
    ):
        assert TrainerSettings.of(binds).max_model_len == length
    assert (
        TrainerSettings.decode(TrainerSettings.of([("engine", {"max_model_len": 4096})]).encode()).max_model_len == 4096
    )


def test_settings_come_from_what_a_run_reported() -> None:
    known = TrainerSettings.of([("config", {"prompt_length": 5, "max_model_len": None, "trainer_mode": "sync"}),
                         ("tokenizer", {"end_tokens": [2, 3]})])  # fmt: skip
    assert (known.prompt_length, known.max_model_len, known.is_sync) == (5, None, True)
    assert known.end_tokens == {2, 3}


def test_an_end_token_that_the_agent_took_off_is_missed() -> None:
    said, settings = [*range(200, 230), 9], TrainerSettings.of([("tokenizer", {"end_tokens": [9]})])
    for returned, found in ((said[:-1], [("AT-NO-EOS", 1, 30)]), (said, []), ([*said, 7], []), (said[:20], [])):
        agent = span("agent", None)
        agent.response_ids, agent.response_mask = returned, [1] * len(returned[:31]) + [0] * len(returned[31:])
        assert marks(trajectory(agent, llm(agent.span_id, 1, PROMPT, said)), settings) == found


def test_at_the_limit_of_the_response_none_is_missed() -> None:
    said = [*range(200, 230), 9]
    settings = TrainerSettings.of([("config", {"response_length": 30}), ("tokenizer", {"end_tokens": [9]})])
    agent = span("agent", None)
    agent.response_ids, agent.response_mask = said[:-1], [1] * 30
    assert "AT-NO-EOS" not in [
        code for code, _, _ in marks(trajectory(agent, llm(agent.span_id, 1, PROMPT, said)), settings)
    ]
