"""What changed when the reward changed: planted changes are named first, and chance is never a cause."""

from __future__ import annotations

import math
import random
import time

import pytest

from autotrace.insight.changes import changes, two_sided
from autotrace.insight.contrast import compare, fisher
from autotrace.insight.diagnose import Diagnosis, hits
from autotrace.insight.examine import examine
from autotrace.insight.finding import Finding
from autotrace.insight.profile import Trait, TurnProfile, decode, encode
from autotrace.insight.rollouts import Rollouts
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import History, Step
from autotrace.insight.why import UNKNOWN, Why, words
from tests.findings.field import CHANGED, DROPS, UNEXPLAINED, Change, played
from tests.insight.made import llm, record, span, step, trajectory


def explained(steps: list[Step]) -> Why:
    watch, history = Why(4096), History()
    for one in steps:
        hits(one, history)
        watch.add(one)
    return watch


def found(steps: list[Step]) -> list[Finding]:
    diagnosis = Diagnosis()
    for one in steps:
        diagnosis.add(one)
    return diagnosis.findings()


@pytest.mark.parametrize("change", DROPS, ids=lambda change: change.name)
def test_the_planted_change_is_the_first_cause(change: Change) -> None:
    steps = played(change)
    first = next(explained(steps).answers())
    assert first.step == CHANGED and first.causes, list(words(first))
    assert change.clue in first.causes[0].words, list(words(first))
    dropped = [one for one in found(steps) if one.code == "AT-REWARD-DROPPED"]
    assert [one.since_step for one in dropped] == [CHANGED]
    assert dropped[0].answer is not None and change.clue in dropped[0].answer.causes[0].words


@pytest.mark.parametrize("name", ["no session", "out of time", "refuses"])
def test_a_long_run_is_compared_over_all_steps_after_the_change(name: str) -> None:
    change = next(change for change in DROPS if change.name == name)
    first = next(explained(played(change, steps=40, changed=30)).answers())
    assert first.step == 30 and change.clue in first.causes[0].words and first.rollouts > 100, list(words(first))


@pytest.mark.parametrize("change", UNEXPLAINED, ids=lambda change: change.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_drop_without_a_recorded_cause_is_not_explained(change: Change, seed: int) -> None:
    answers = list(explained(played(change, seed)).answers())
    assert [(answer.step, answer.causes) for answer in answers] == [(CHANGED, [])]
    assert UNKNOWN in "\n".join(words(answers[0]))


@pytest.mark.parametrize("seed", range(12))
def test_a_clean_run_has_no_finding_and_no_cause(seed: int) -> None:
    steps = played(None, seed)
    assert found(steps) == []
    assert [answer.causes for answer in explained(steps).answers()] in ([], [[]])


def test_a_reward_that_rises_slowly_is_learning_and_one_that_rises_at_once_is_not() -> None:
    table, luck = Rollouts(), random.Random(1)

    def run(chances: list[float]) -> list[str]:
        by_step = {}
        for number, chance in enumerate(chances):
            records = [
                record(n, f"{number}/{n // 4}", step=number, reward=float(luck.random() < chance)) for n in range(64)
            ]
            by_step[number] = table.rows_of(step(records, number), records, 100)
        return [f"{'fell' if one.is_drop else 'rose'} at {one.step}" for one in changes(by_step)]

    assert run([0.1 + 0.04 * n for n in range(20)]) == []
    assert run([0.2] * 6 + [0.8] * 6) == ["rose at 6"]
    assert run([0.8] * 6 + [0.2] * 6) == ["fell at 6"]
    assert run([0.8] * 4 + [0.2] * 4 + [0.8] * 4) == ["fell at 4"]  # that it came back is no news
    assert run([0.5] * 20) == [] and run([0.9, 0.1]) == ["fell at 1"]


def test_a_change_is_placed_at_its_step_also_if_the_step_before_it_is_low_by_chance() -> None:
    def placed(seed: int) -> list[int]:
        table, luck, by_step = Rollouts(), random.Random(seed), {}
        for number in range(20):
            hard = [luck.gauss(0, 0.15) for _ in range(6)]
            records = [
                record(n, f"{number}/{n // 4}", step=number,
                       reward=float(luck.random() < (0.78 if number < 12 else 0.35) + hard[n // 4]))
                for n in range(24)
            ]  # fmt: skip
            by_step[number] = table.rows_of(step(records, number), records, 100)
        return [one.step for one in changes(by_step)]

    at = [placed(seed) for seed in range(60)]
    assert sum(one == [12] for one in at) >= 53, at


def test_a_step_in_which_all_succeed_by_chance_is_no_level_from_which_the_reward_falls() -> None:
    table, by_step = Rollouts(), {}
    for number, right in enumerate((24, 21, 22, 20, 21, 20)):
        records = [record(n, f"{number}/{n % 6}", step=number, reward=float(n < right)) for n in range(24)]
        by_step[number] = table.rows_of(step(records, number), records, 100)
    assert changes(by_step) == []


def test_rollouts_that_last_longer_because_they_fail_are_no_cause() -> None:
    """An episode ends when the task is solved, and the environment says so."""
    luck, steps = random.Random(5), []
    for number in range(8):
        records = []
        for n in range(24):
            right = luck.random() < (0.8 if number < 4 else 0.2)
            said = [Trait("tool_answers", 'game answers "You have it."')] if right else []
            turns = [TurnProfile(9, 9, "stop", 2)] * (2 if right else 4)
            records.append(record(n, f"{number}/{n // 4}", step=number, reward=float(right), turns=turns, traits=said))
        steps.append(step(records, number))
    (answer,) = explained(steps).answers()
    assert (answer.step, answer.causes) == (4, [])
    said = list(words(answer))[1]
    assert UNKNOWN in said and "may be consequences" in said and "You have it" in said


def test_a_few_rollouts_with_old_weights_are_named_with_their_first_step() -> None:
    """Nearly all rollouts have the least value of the quantity, and most low rewards have other reasons."""
    luck, steps = random.Random(3), []
    for number in range(10):
        records = []
        for n in range(32):
            version = 4 if number > 4 and n % 4 == 1 else number
            right = 0.1 if number - version > 1 else 0.7
            turns = [TurnProfile(9, 9, "stop", 2, weights=version)]
            records.append(
                record(n, f"{number}/{n // 4}", step=number, reward=float(luck.random() < right), turns=turns)
            )
        steps.append(step(records, number))
    (answer,) = explained(steps).answers()
    (said, *_) = [line.strip() for line in words(answer)][1:]
    assert "since step 6: steps that the weights are behind: at least 1" in said, said


def test_few_prompts_say_nothing() -> None:
    table = Rollouts()
    by_step = {}
    for number, reward in enumerate((1.0, 0.0)):
        records = [record(n, f"{number}/{n % 3}", step=number, reward=reward) for n in range(24)]
        by_step[number] = table.rows_of(step(records, number), records, 100)
    assert changes(by_step) == []


def test_a_trait_that_came_at_the_same_time_and_changes_nothing_is_no_cause() -> None:
    def also(play: object) -> None:
        bad = play.luck.random() < 0.85  # type: ignore[attr-defined]
        vars(play).update(
            sampling={"temperature": 1.0, "model": "policy", "seed": 3} if play.luck.random() < 0.5 else {}
        )  # type: ignore[attr-defined]
        if bad:
            vars(play).update(answer="The archive is closed.")

    (answer,) = explained(played(Change("", also, ""))).answers()
    assert "The archive is closed" in answer.causes[0].words
    assert not any("seed" in cause.words for cause in answer.causes)


def test_two_causes_are_told_apart_and_what_follows_is_below() -> None:
    def both(play: object) -> None:
        luck = play.luck.random()  # type: ignore[attr-defined]
        if luck < 0.4:
            vars(play).update(answer="The archive is closed.")
        elif luck < 0.8:
            vars(play).update(asks=False)

    (answer,) = explained(played(Change("", both, ""))).answers()
    named = " / ".join(cause.words for cause in answer.causes[:2])
    assert "The archive is closed" in named and "makes no LLM call" in named
    without = next(cause for cause in answer.causes if "no LLM call" in cause.words)
    assert "the tools called are none" in without.also


def test_the_consequences_of_a_cause_are_below_it() -> None:
    outage = next(change for change in DROPS if change.name == "outage")
    codes = [(one.code, one.under) for one in found(played(outage))]
    assert codes[0] == ("AT-TOOL-ONE-ANSWER", "") and ("AT-REWARD-DROPPED", "AT-TOOL-ONE-ANSWER") in codes


def test_equal_traits_are_one_candidate_and_the_number_of_candidates_is_accounted_for() -> None:
    table, luck = Rollouts(), random.Random(5)
    records = [record(n, f"1/{n}", reward=float(luck.random() < 0.5)) for n in range(200)]
    rows = table.rows_of(step(records), records, 1000)
    for trait in range(400):
        table.traits.append((table.traits[0][0], f"coin {trait}"))
        for row in rows:
            if luck.random() < 0.5:
                row.traits.append(len(table.traits) - 1)
    assert compare(rows[:100], rows[100:], table.traits).causes == []
    for row in rows[:100]:
        row.traits.append(0)
    assert compare(rows[:100], rows[100:], table.traits).tested <= 402


def test_rollouts_of_one_prompt_are_alike_and_do_not_count_as_many() -> None:
    table = Rollouts()

    def answer(groups: int) -> int:
        records = [record(n, f"{groups}/{n // 32}", reward=float(n % 3 == 0)) for n in range(32 * groups)]
        rows = table.rows_of(step(records), records, 10_000)
        table.traits.append((table.traits[0][0], f"of {groups}"))
        for row in rows[: len(rows) // 2]:
            row.traits.append(len(table.traits) - 1)
        found = compare(rows[: len(rows) // 2], rows[len(rows) // 2 :], table.traits)
        return len([cause for cause in found.causes if cause.words == f"of {groups}"])

    assert answer(4) == 0 and answer(40) == 1


def test_values_of_any_shape_cost_no_profile_and_little_time() -> None:
    agent = span("agent", None)
    odd = llm(agent.span_id, 1, [1, 2], [3, 4], inputs={"tools": [None, 3, {"function": 7}], "stop": ["\ud800"]})
    odd.messages = [
        {"role": "system", "content": "a-" * 200_000},
        {"role": "user", "content": [{"text": 5}, "x", None]},
        {"role": "assistant", "content": "\ud800", "tool_calls": [None, {"function": {"name": 4}}, "call"]},
    ]
    tool = span(
        "tool", agent.span_id, 2, inputs={"arguments": "{not JSON", "name": "\udfff"}, output={"text": ["\ud800"]}
    )
    reward = span(
        "reward", agent.span_id, 3, inputs={"messages": [{"role": "assistant"}], "other": [1]}, output=math.nan
    )
    began = time.process_time()
    profile = examine(trajectory(agent, odd, tool, reward), TrainerSettings())
    assert time.process_time() - began < 1.0
    assert len(profile.turns) == 1 and profile.traits and profile.prompt
    assert decode(encode(profile)) is not None


def test_fishers_test_and_students_t() -> None:
    assert fisher(3, 4, 1, 4) == pytest.approx(0.4857, abs=1e-3)
    assert fisher(10, 10, 0, 10) == pytest.approx(2 / math.comb(20, 10), rel=1e-6)
    assert fisher(5, 10, 5, 10) == 1.0
    assert two_sided(2.571, 5) == pytest.approx(0.05, abs=1e-4) and two_sided(2.228, 10) == pytest.approx(
        0.05, abs=1e-4
    )
