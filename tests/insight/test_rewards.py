"""Rewards that say nothing."""

from __future__ import annotations

from autotrace.insight.families.rewards import constant
from autotrace.insight.step_records import KEPT_STEPS, History, Record
from tests.insight.made import record, step


def rows(number: int, rewards: list[float], source: str = "small") -> list[Record]:
    """Of one data source in a step, two to a group."""
    return [
        record(100 * number + at, f"{number}/{source}{at // 2}", reward=reward, data_source=source)
        for at, reward in enumerate(rewards)
    ]


def test_a_source_with_few_rows_a_step_is_judged_over_the_steps() -> None:
    history = History()
    notes = []
    for number in range(1, 7):
        records = [*rows(number, [0.0] * 16), *rows(number, [0.0, 1.0] * 4, "other")]
        notes.append({hit.note for hit in constant(step(records, number), history)})
    since = "rows of 'small' have 0 since step 1"
    assert notes == [set(), set(), set(), {f"64 of 64 {since}"}, {f"80 of 80 {since}"}, {f"96 of 96 {since}"}]
    again = {hit.note for hit in constant(step(rows(5, [0.0] * 16), 5), history)}
    assert again == {f"80 of 80 {since}"}, "a step that is looked at again counts once"


def test_one_that_was_rewarded_before_or_is_now_has_rewards() -> None:
    history = History()
    found = [
        list(constant(step(rows(number, [0.0] * 15 + [1.0 if number in (2, 8) else 0.0]), number), history))
        for number in range(1, 9)
    ]
    assert [bool(hits) for hits in found] == [False] * 6 + [True, False], "from step 7 on it is 1 of 112"


def test_a_step_of_many_rows_and_steps_without_a_number() -> None:
    hits = list(constant(step(rows(3, [1.0] * 64), 3), History()))
    assert len(hits) == 64 and hits[0].note == "64 of 64 rows of 'small' have 1"
    history = History()
    assert [list(constant(step(rows(1, [1.0] * 16), None), history)) for _ in range(6)] == [[]] * 6


def test_a_step_of_long_ago_may_be_looked_at_again_and_sources_are_forgotten_with_their_steps() -> None:
    history = History()
    for number in range(1, 3 * KEPT_STEPS):
        list(constant(step(rows(number, [0.0] * 2, f"source {number}"), number), history))
    assert len(history.steps) == KEPT_STEPS and sum(map(len, history.steps.values())) == KEPT_STEPS
    assert len(list(constant(step(rows(1, [0.0] * 64), 1), history))) == 64
