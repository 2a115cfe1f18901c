"""What only a group or a step shows, at the borders of its thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import pytest

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.families import rewards, tools
from autotrace.insight.step_lines import line
from autotrace.insight.step_records import Record
from autotrace.insight.words import amount, worst
from autotrace.trajectory.jsonable import finite
from tests.insight.made import SECOND, Mark, ToolUse, TurnProfile, diagnose, record, step

TWO = [TurnProfile(100, 10, "stop", 2, 0, 0, 1), TurnProfile(200, 10, "stop", 2, 110, 104, 1)]


def codes(records: Sequence[Record], number: int = 1, **settings: Any) -> set[str]:
    return {finding.code for finding in diagnose([step(records, number, **settings)])}


def groups(rewards: Iterable[Sequence[float | None]], **given: Any) -> list[Record]:
    numbers = iter(range(10_000))
    return [
        record(next(numbers), f"1/u{group}", reward=reward, **given)
        for group, those in enumerate(rewards)
        for reward in those
    ]


def test_half_of_the_groups_flat_is_usual_and_nearly_all_are_not() -> None:
    assert codes(groups([[1, 1], [0, 0], [0, 1], [1, 0]])) == set()
    assert codes(groups([[1, 1], [0, 0]] * 8 + [[0, 1]])) == {"AT-NO-SIGNAL"}


def test_groups_without_signal_are_counted_as_groups() -> None:
    flat, spread = [[1.0] * 8, [0.0] * 8], [[0.0, 1.0] * 4]
    (found,) = [
        finding
        for finding in diagnose([step(groups([*flat * 53, [1.0] * 8, *spread * 13]))])
        if finding.code == "AT-NO-SIGNAL"
    ]
    assert (found.trajectories, found.of, found.unit, found.as_dict()["unit"]) == (107, 120, "groups", "groups")
    assert amount(found) == "89.2% of the groups (107 of 120), since step 1"
    assert found.cost == pytest.approx(0.6 * 107 / 120)
    assert worst([found]) == ("AT-NO-SIGNAL (89% of the groups)", found.places[0].trace_id) and worst([]) == ("", "")


@pytest.mark.parametrize(
    ("rewards", "found"),
    [
        ([[1, 1], [0, 0], [0, 0], [1, 1], [1, 1], [0, 1]], False),  # five of six, as chance has it
        ([[0, 0]] * 8 + [[0, 1]], True),  # of one cause, which it has not
        ([[0, 0]] * 4, True),  # nothing is learned
    ],
)
def test_flat_groups_of_a_step_of_few(rewards: list[list[float]], found: bool) -> None:
    assert ("AT-NO-SIGNAL" in codes(groups(rewards))) is found


def test_groups_that_are_flat_because_all_was_cut_are_told_apart() -> None:
    cut = [record(n, "1/u9", reward=0.0, marks=[Mark("AT-TRUNCATED", 1, 9)]) for n in range(90, 94)]
    found = diagnose([step(groups([[0, 1], [0, 1]]) + cut)])
    assert [finding.code for finding in found if finding.code.startswith("AT-NO")] == ["AT-NO-SIGNAL-TRUNCATED"]


def test_what_was_cancelled_did_not_fail() -> None:
    """It was not wanted: neither the line of its step nor its group counts it."""
    ended = [record(n, "1/u0", uid="u0", reward=n / 4, status=status) for n, status in enumerate(("OK", "CANCELLED"))]
    told = line(step(ended), ended, validate=False)
    assert (told.failed, told.errors) == (0, {"CANCELLED": 1})
    broken = [*ended, record(2, "1/u0", uid="u0", status="TIMEOUT", error="TimeoutError: 60 s")]
    told = line(step(broken), broken, validate=False)
    assert (told.failed, told.errors) == (1, {"CANCELLED": 1, "TIMEOUT TimeoutError": 1})
    assert "AT-GROUP-INCOMPLETE" not in codes(ended) and "AT-GROUP-INCOMPLETE" in codes(broken)


def test_a_group_teaches_nothing_where_its_tools_failed_however_that_shows() -> None:
    """One definition, that of ``tool_error``: calls that raised, and what findings say of them."""
    for shown in ({"tools": [ToolUse("search", 2, 1)]}, {"marks": [Mark("AT-TOOL-ERROR-TEXT", 1)]}):
        failed = [record(n, "1/u9", reward=0.0, **shown) for n in range(90, 94)]
        found = {finding.code for finding in diagnose([step(groups([[0, 1], [0, 1]]) + failed)])}
        assert "AT-NO-SIGNAL-ERRORS" in found


@pytest.mark.parametrize(("advantage", "wrong"), [(0.7, False), (-0.7, True), (0.0, True)])
def test_an_advantage_has_the_sign_of_what_sets_its_rollout_apart(advantage: float, wrong: bool) -> None:
    records = [record(0, reward=1.0, facts={"advantage": advantage}), record(1, reward=0.0, facts={"advantage": -0.7})]
    assert ("AT-ADVANTAGE-WRONG" in codes(records, adv_estimator="grpo")) is wrong
    assert "AT-ADVANTAGE-WRONG" not in codes(records, adv_estimator="gae")


def test_equal_rewards_have_advantages_of_nothing_or_noise() -> None:
    for advantages, expected in (
        ([0.056] * 8, {"AT-ADVANTAGE-NOISE"}),
        ([0.0] * 8, set()),
        ([-0.0007] * 8, set()),
        ([0.3, -0.3] * 4, set()),  # a penalty in the reward
        ([math.nan] * 8, {"AT-ADVANTAGE-NAN"}),
    ):
        flat = [record(n, reward=0.7, facts={"advantage": value}) for n, value in enumerate(advantages)]
        assert codes(flat, adv_estimator="grpo") == expected
    assert "AT-ADVANTAGE-NOISE" not in codes(flat, adv_estimator="gae")


def test_a_reward_or_an_advantage_that_is_no_number() -> None:
    assert "AT-ADVANTAGE-NAN" in codes([record(0, facts={"advantage": "nan"}), record(1)])
    assert math.isnan(record(0, reward=None, facts={"reward": "nan"}).score or 0)


def test_a_group_that_lacks_rollouts() -> None:
    whole = groups([[0, 1, 0, 1]] * 3)
    assert codes(whole, rollout_n=4) == set()
    assert codes(whole[:-1], rollout_n=4) == {"AT-GROUP-INCOMPLETE"}
    assert "AT-GROUP-OF-ONE" in codes(whole[:-3], rollout_n=4)


def test_rollouts_that_failed_were_cancelled_or_were_made_again() -> None:
    whole = groups([[0, 1, 0, 1]] * 3)
    failed = record(90, "1/u9", status="ERROR", reward=None)
    cancelled = record(91, "1/u8", status="CANCELLED", reward=None)
    nine, eight = (groups([[0, 1, 1]]), groups([[0, 1, 1]]))
    for number, (one, other) in enumerate(zip(nine, eight, strict=True)):
        one.group, other.group, one.trace_id, other.trace_id = "1/u9", "1/u8", f"a{number}", f"b{number}"
    assert codes([*whole, *nine, failed], rollout_n=4) == {"AT-GROUP-INCOMPLETE"}
    assert codes([*whole, *eight, cancelled], rollout_n=4) == set()
    first = [record(n, reward=n % 2, rollout_n=n, answers=f"said {n}", attempt=1) for n in range(4)]
    again = [record(50 + n, reward=n % 2, rollout_n=n, answers=f"said {n}", attempt=2) for n in range(4)]
    assert codes([*first, *again], rollout_n=4) == set()


def test_a_tool_fails_at_a_rate_and_not_once() -> None:
    fails = Mark("AT-TOOL-RAISES", 1, None, "search: X", "search: X")
    used = [record(n, tools=[ToolUse("search", 10)], reward=n % 2) for n in range(20)]
    once = record(99, tools=[ToolUse("search", 10, 1)], marks=[fails])
    assert codes([*used, once]) == set()
    assert codes([*used, *(record(n, tools=[ToolUse("search", 10, 1)], marks=[fails]) for n in range(50, 56))]) == {
        "AT-TOOL-RAISES"
    }


def test_error_texts_that_differ_are_a_tools_work() -> None:
    def of(kind: str, number: int) -> Record:
        mark = Mark("AT-TOOL-ERROR-TEXT", 1, None, kind, f"run: {kind}")
        return record(number, tools=[ToolUse("run", 1)], marks=[mark], reward=number % 2)

    assert codes([of(f"Error: {chr(65 + n)}", n) for n in range(20)]) == set()
    assert codes([of("Error: refused", n) for n in range(20)]) == {"AT-TOOL-ERROR-TEXT"}


def test_weights_that_stay_over_three_steps() -> None:
    def at(number: int, version: int, **facts: Any) -> Any:
        turns = [TurnProfile(9, 9, "stop", 2, weights=version)]
        return step([record(number, reward=n, turns=turns, facts=facts) for n in (0, 1)], number)

    trained = [at(number, 1, trained_in_step=number) for number in (2, 3, 4)]
    assert [finding.code for finding in diagnose(trained[:2])] == []
    assert "AT-WEIGHTS-STUCK" in {finding.code for finding in diagnose(trained)}
    assert diagnose([at(2, 1), at(3, 1), at(4, 1)]) == [], "nothing says that anything is trained"
    assert diagnose([at(2, 1), at(3, 2), at(4, 3)]) == []


def test_an_engine_whose_weights_stay_beside_engines_with_new_weights() -> None:
    def at(number: int, *versions: int) -> Any:
        turns = [[TurnProfile(9, 9, "stop", 2, weights=version)] for version in versions]
        return step([record(n, reward=n % 2, turns=one) for n, one in enumerate(turns)], number)

    stuck = [at(number, number, number, 2, number) for number in range(3, 8)]
    (finding,) = diagnose(stuck)
    assert (finding.code, finding.trajectories) == ("AT-WEIGHTS-STUCK", 1)
    assert finding.places[0].note == "version 2 in steps 3 to 7, others have version 7"
    assert diagnose(stuck[:4]) == []
    assert diagnose([at(number, number, number - 2, number - 1, number) for number in range(3, 12)]) == []


def test_a_drop_that_moves_to_a_later_step_has_no_finding_at_the_earlier_step() -> None:
    rights = (31, 22, 26, 15, 12, 12, 12)  # of 32 rollouts: at step 3 the drop seems to begin at step 1
    steps = [
        step([record(n, f"{number}/{n % 8}", step=number, reward=float(n < right)) for n in range(32)], number)
        for number, right in enumerate(rights)
    ]
    first, last = (
        next(one for one in diagnose(steps[:count]) if one.code == "AT-REWARD-DROPPED") for count in (4, len(steps))
    )
    assert (first.since_step, last.since_step, last.steps) == (1, 3, 4)


def test_a_drop_stays_a_finding_however_many_steps_follow() -> None:
    def drop(count: int) -> list[str]:
        steps = []
        for number in range(count):
            reward = 0.2 if number >= 30 else 0.8
            rewards = [reward + 0.01 * ((n * 7 + number) % 5) for n in range(16)]
            steps.append(step([record(number * 16 + n, f"{number}/{n // 2}", step=number, reward=one)
                               for n, one in enumerate(rewards)], number))  # fmt: skip
        return [each.title for each in diagnose(steps) if each.code == "AT-REWARD-DROPPED"]

    assert drop(60) and drop(130) == drop(60)


def test_a_straggler_has_a_cause_and_what_it_cost() -> None:
    usual = [record(n, reward=n % 2, times={"tool_s": 0.1, "decode_s": 0.9}) for n in range(30)]
    late = record(99, end_ns=9 * SECOND, times={"tool_s": 8.1, "decode_s": 0.9})
    (finding,) = diagnose([step([*usual, late])])
    assert (finding.code, finding.notes, finding.seconds) == ("AT-STRAGGLER", {"tools": 1}, 8.0)
    assert finding.places[0].trace_id == late.trace_id


def test_the_prefix_cache_and_what_it_lost() -> None:
    kept = [record(n, reward=n % 2, turns=TWO) for n in range(20)]
    lost = [TurnProfile(100, 10, "stop", 2, 0, 0, 1), TurnProfile(200, 10, "stop", 2, 110, 0, 1)]
    assert codes([*kept, record(90, turns=lost)]) == set()
    assert codes([*kept, *(record(n, turns=lost) for n in range(50, 54))]) == {"AT-CACHE-LOST"}
    assert codes([record(n, reward=n % 2, turns=lost) for n in range(20)]) == set()  # no cache at all


def test_rollouts_alike() -> None:
    def group(answers: Sequence[str]) -> list[Record]:
        return [record(n, answers=said, reward=n % 2) for n, said in enumerate(answers)]

    assert codes(group(["a", "b", "c", "d"])) == codes(group(["", "", "", ""])) == set()
    assert codes(group(["a", "a", "b", "c"])) == {"AT-DUPLICATE-ROLLOUTS"}


def test_most_costly_first_and_since_when() -> None:
    cut = [record(n, reward=n % 2, marks=[Mark("AT-TRUNCATED", 1, 3)] if n < 5 else []) for n in range(10)]
    nan = [record(n, reward=n % 2, marks=[Mark("AT-REWARD-NAN", 1)] if n < 9 else []) for n in range(10)]
    diagnosis = Diagnosis()
    for number, records in ((1, cut), (2, cut), (3, nan)):
        diagnosis.add(step(records, number))
    first, second = diagnosis.findings()
    assert (first.code, first.since_step, first.trajectories, first.of, first.steps) == ("AT-REWARD-NAN", 3, 9, 30, 1)
    assert (second.code, second.since_step, second.trajectories, second.steps) == ("AT-TRUNCATED", 1, 10, 2)
    assert first.cost > second.cost
    assert len(first.places) == 3


def test_a_trajectory_trained_on_twice() -> None:
    def group(*steps: object) -> list[Record]:
        return [record(n, reward=n % 2, facts=dict([("trained_in_steps" if isinstance(given, list) else
                "trained_in_step", given)])) for n, given in enumerate(steps)]  # fmt: skip

    twice = "AT-TRAINED-TWICE"
    assert codes(group(1, 1, 1, 1), rollout_n=4) == set()
    assert codes(group(1, [1, 2], 1, 1), rollout_n=4) == {twice}
    assert codes(group(1, [1, 1], 1, 1), rollout_n=4) == {twice}
    assert codes(group([1, 1], None), rollout_n=2) == set(), "of two that say the same, which one is not known"
    (finding,) = diagnose([step(group(1, [3, 1, 3], 1, 1), rollout_n=4)])
    assert (finding.trajectories, finding.places[0].note) == (1, "3 times, in steps 1, 3")


def test_places_for_rollouts_that_are_empty() -> None:
    usual = [record(n, reward=n % 2, end_ns=5 * SECOND) for n in range(30)]
    slow = [record(n, reward=n % 2, end_ns=40 * SECOND, times={"tool_s": 35.0}) for n in range(30, 36)]
    (finding,) = diagnose([step([*usual, *slow])])
    assert (finding.code, finding.notes) == ("AT-STEP-IDLE", {"tools": 1})
    assert finding.seconds == pytest.approx(40 - (30 * 5 + 6 * 40) / 36, abs=1e-3)
    assert "73% of 36 places" in finding.places[0].note
    few_at_once = [record(n, reward=n % 2, start_ns=n * SECOND, end_ns=(n + 1) * SECOND) for n in range(40)]
    assert codes(few_at_once) == set()
    assert codes([record(n, reward=n % 2, end_ns=(5 if n else 18) * SECOND) for n in range(30)]) <= {"AT-STRAGGLER"}


def test_answers_that_are_paid_for_their_form() -> None:
    def rows(
        short: int, paid: float = 0.2, truth: float = 0.0, form: str = "format", right: str = "acc"
    ) -> list[Record]:
        made = []
        for n in range(40):
            is_short = n < short
            parts = {form: 1.0, right: truth if is_short else float(n % 2)}
            reward = paid if is_short else 0.2 + n % 2 if n % 5 else 0.0
            turns = [TurnProfile(100, 12 if is_short else 200 + n, "stop", 2)]
            made.append(record(n, f"1/u{n // 4}", reward=reward, turns=turns, facts={"reward_extra_info": parts}))
        return made

    gamed = "AT-FORMAT-GAMED"
    assert gamed not in codes(rows(0))
    assert gamed not in codes(rows(2)), "two of forty"
    assert gamed not in codes(rows(6, paid=0.0)), "they are not paid"
    assert gamed not in codes(rows(6, truth=1.0)), "short and right"
    assert gamed in codes(rows(6, form="fmt_reward", right="answer_reward"))
    assert gamed not in codes(rows(6, form="answer_format", right="answer_format")), "no part is for the truth"
    (finding,) = (one for one in diagnose([step(rows(6))]) if one.code == gamed)
    assert finding.trajectories == 6 and "6 of 40 rows" in finding.places[0].note


def test_parts_of_rewards_that_each_have_a_name_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(rewards, "finite", lambda value: asked.append(value) or finite(value))
    codes([
        record(n, reward=1.0, facts={"reward_extra_info": {f"format_{n}": 1.0, f"right_{n}": 1.0}}) for n in range(300)
    ])  # fmt: skip
    assert 0 < len(asked) < 10 * 300


def test_rows_of_a_trained_step_that_were_left_out() -> None:
    trained = [record(n, reward=n % 2, facts={"trained_in_step": 1}) for n in range(4)]
    left = record(9, "1/v", reward=0.5, facts={})
    assert codes([*trained, left], trainer_mode="sync") == {"AT-NOT-TRAINED"}
    assert codes([*trained, left]) == set(), "it may be trained on later"
    assert codes([*trained, record(9, "1/v", facts={"dropped": "filtered"})], trainer_mode="sync") == set()


def test_the_mean_of_tokens_is_of_those_that_are_known() -> None:
    unknown, half = [TurnProfile(finish="stop")], [TurnProfile(4, 7), TurnProfile(finish="stop")]
    records = [
        *(record(n, turns=unknown) for n in range(3)),
        record(3, turns=[TurnProfile(4, 7)]),
        record(4, turns=half),
    ]
    assert line(step(records), records, validate=False).tokens_mean == 7
    assert line(step(records), records[:3], validate=False).tokens_mean is None
    assert line(step(records), [record(turns=[TurnProfile(4, 0)])], validate=False).tokens_mean == 0


def test_requests_that_are_preempted() -> None:
    whole = [record(n, reward=n % 2) for n in range(40)]
    often = [record(n, reward=n % 2, turns=[TurnProfile(4, 10, "stop", 2, preempted=2)]) for n in range(50, 54)]
    assert codes([*whole, *often[:1]]) == set()
    (finding,) = diagnose([step([*whole, *often])])
    assert (finding.code, finding.places[0].turn, finding.places[0].note) == ("AT-PREEMPTED", 1, "2 times")


def test_a_detector_that_raises_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotrace.insight import registry

    def broken(*given: object) -> Iterable[Any]:
        raise RuntimeError("a shape that nobody thought of")

    monkeypatch.setattr(registry, "OF_STEP", (broken,))
    monkeypatch.setattr(registry, "OF_GROUP", (broken,))
    assert codes([record(0, marks=[Mark("AT-TURN-LIMIT", 1)]), record(1)]) == {"AT-TURN-LIMIT"}


def test_what_a_tool_usually_takes_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of thousands of rollouts took a second for it."""
    asked: list[object] = []
    monkeypatch.setattr(tools, "median", lambda times: asked.append(times) or median(times))
    made = [record(n, reward=n % 2, tools=[ToolUse("search", 1, 0, 1.0, 90.0 if n == 7 else 1.0)]) for n in range(40)]
    assert "AT-TOOL-SLOW" in codes(made) and len(asked) == 1
