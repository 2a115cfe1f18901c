"""The trainer's log-probabilities against the engine's: what is found, where, and what resembles it."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.examine import examine
from autotrace.insight.finding import Finding
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Record, Step
from autotrace.spool.token_facts import MASK, along
from tests.insight.made import Mark, TurnProfile, llm, record, span, step, trajectory
from tests.insight.made import diagnose as diagnose_all

TWO = [TurnProfile(100, 10, "stop", 2), TurnProfile(120, 20, "stop", 2)]


OURS = ("AT-MISMATCH", "AT-LOGPROB-INVALID")


def diagnose(steps: list[Step]) -> list[Finding]:
    """What is found of it: these records show other things, too."""
    return [finding for finding in diagnose_all(steps) if finding.code.startswith(OURS)]


def facts(mean: float, *, diff: float | None = None, sign: float = 0.1, **more: Any) -> dict[str, Any]:
    """As a trainer's batch has them."""
    numbers = {"tokens": 30, "mismatch_mean": mean, "mismatch_max": 10 * mean, "mismatch_at": 25, "not_finite": 0}
    numbers |= {"probs_diff_mean": mean / 2 if diff is None else diff, "k3_mean": mean * mean}
    return {"mismatch_mean": mean, "token_facts": {**numbers, "log_ratio_mean": sign * mean, **more}}


def rows(count: int, mean: float, first: int = 0, **more: Any) -> list[Record]:
    settings = {name: more.pop(name) for name in ("turns",) if name in more}
    return [
        record(first + n, f"1/u{n // 4}", facts=facts(mean, **more), reward=n % 4, **settings) for n in range(count)
    ]


def codes(records: list[Record], number: int = 1, **settings: Any) -> set[str]:
    return {finding.code for finding in diagnose([step(records, number, **settings)])}


def test_engines_and_trainers_differ_a_little_and_by_single_tokens() -> None:
    assert codes([*rows(16, 0.008), *rows(1, 0.04, 50, mismatch_max=3.0)]) == set()


@pytest.mark.parametrize(
    ("sign", "kind"), [(-1.0, "the engine is surer"), (0.9, "the trainer is surer"), (0.2, "both ways")]
)
def test_a_step_in_which_they_disagree_says_which_is_surer(sign: float, kind: str) -> None:
    (found,) = diagnose([step(rows(16, 0.12, turns=TWO, sign=sign))])
    assert (found.code, found.trajectories, found.notes) == ("AT-MISMATCH", 16, {kind: 16})
    assert (found.places[0].turn, found.places[0].token) == (2, 5)


def test_a_trajectory_that_differs_many_times_as_much_as_its_step() -> None:
    (found,) = diagnose([step([*rows(33, 0.004), *rows(1, 0.3, 50, turns=TWO)])])
    assert (found.code, found.trajectories) == ("AT-MISMATCH-TRAJECTORY", 1)
    assert (found.places[0].trace_id, found.places[0].turn) == (f"{50:032x}", 2)
    assert codes([*rows(33, 0.004), *rows(1, 0.3, 50, tokens=3)]) == set(), "three tokens are no trajectory"


def test_single_trajectories_that_differ_do_not_count_for_the_step() -> None:
    odd = rows(4, 3.0, 50, diff=0.5, k3_mean=4.0)
    assert codes([*rows(32, 0.004), *odd]) == {"AT-MISMATCH-TRAJECTORY"}
    assert codes([*rows(8, 0.004), *odd]) == {"AT-MISMATCH"}, "a third of them is more than single ones"
    assert codes([*rows(32, 0.3, diff=0.1), *odd]) == {"AT-MISMATCH", "AT-MISMATCH-TRAJECTORY"}


def test_older_weights_differ_on_purpose_where_nobody_waits_for_rollouts() -> None:
    older = [TurnProfile(100, 30, "stop", 2, weights=2)]
    stale = rows(16, 0.2, turns=older)
    for one in stale:
        one.step, one.facts = 5, {**one.facts, "trained_in_step": 5}
    found = {finding.code for finding in diagnose([step(stale, 5, trainer_mode="separate_async")])}
    assert "AT-MISMATCH" not in found
    assert "AT-MISMATCH" in codes(stale, 5, trainer_mode="sync")


def test_it_rises_against_the_runs_own_steps() -> None:
    quiet = [step(rows(8, 0.008), number) for number in range(1, 6)]
    assert diagnose(quiet) == []
    (found,) = diagnose([*quiet, step(rows(8, 0.04), 6)])
    assert (found.code, found.since_step) == ("AT-MISMATCH", 6)


def test_a_step_that_is_looked_at_twice_is_not_its_own_history() -> None:
    diagnosis = Diagnosis()
    for number in (1, 2, 3, 4, 4, 4, 4):
        diagnosis.add(step(rows(8, 0.04 if number == 4 else 0.008), number))
    assert [finding.since_step for finding in diagnosis.findings()] == [4]


def test_it_grows_along_the_response() -> None:
    grown = [0.004, 0.01, 0.02, 0.05]
    (found,) = diagnose([step(rows(8, 0.02, by_length=grown))])
    assert (found.code, found.notes) == ("AT-MISMATCH-GROWS", {"by length": 8})
    for drift in (grown[::-1], [0.02] * 4, [0.001, 0.002, 0.004, 0.008]):
        assert codes(rows(8, 0.02, by_length=drift)) == set()
    assert codes(rows(4, 0.02, by_length=grown)) == set(), "too few to tell"


def test_it_grows_from_turn_to_turn() -> None:
    (found,) = diagnose([step(rows(8, 0.05, turns=TWO, diff=0.01, by_turn=[0.004, 0.08]))])
    assert (found.code, found.notes, found.places[0].turn) == ("AT-MISMATCH-GROWS", {"by turn": 8}, 2)


def test_a_log_probability_that_is_no_number() -> None:
    bad = rows(1, 0.004, 50, not_finite=2)
    (found,) = diagnose([step([*rows(8, 0.004), *bad])])
    assert (found.code, found.places[0].note) == ("AT-LOGPROB-INVALID", "2 tokens")


def test_facts_of_other_kinds_are_no_mismatch() -> None:
    for odd in ("text", [1], {"tokens": "many"}, {"tokens": 5, "mismatch_mean": "nan"}, {"not_finite": "x"}, {}):
        assert codes([record(0, facts={"token_facts": odd, "trained_in_steps": odd})]) == set()


def column(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def test_of_the_columns_of_a_response_each_turn_and_each_quarter_is_kept() -> None:
    own, others = [-1.0] * 40, [0.0] * 10
    value = {
        "old_log_probs": column([*own, *others, *[-1.5] * 39, math.nan]),
        "rollout_log_probs": column([*own, *others, *own]),
        MASK: bytes([1] * 40 + [0] * 10 + [1] * 40),
    }
    assert along(value) == {"by_turn": [0.0, 0.5], "by_length": [0.0, 0.0, 0.475, 0.5]}
    value[MASK] = bytes([1] * 30 + [0, 1] * 5 + [0] * 10 + [1] * 40)  # some were rejected
    assert along(value)["by_turn"] == [0.0, 0.5]
    assert along({**value, MASK: b""}).keys() == {"by_length"}
    assert along({"old_log_probs": value["old_log_probs"]}) == along({}) == {}


def test_the_logged_clip_ratio_is_compared_with_what_was_cut() -> None:
    cut = [record(n, marks=[Mark("AT-TRUNCATED-CONTEXT", 1)]) for n in range(4)]
    whole = [record(n) for n in range(4, 8)]
    for logged, expected in ((0.0, True), (0.5, False), (0.45, False), (1.0, True)):
        one = step([*cut, *whole])
        one.metrics = {"response_length/clip_ratio": logged}
        assert ("AT-CLIP-RATIO" in {finding.code for finding in diagnose_all([one])}) is expected
    assert "AT-CLIP-RATIO" not in {finding.code for finding in diagnose_all([step([*cut, *whole])])}


def test_means_over_rows_that_only_fill_the_batch() -> None:
    name = "rollout_corr/training_log_ppl"
    for computed, expected in (
        ({name: 0.9}, True),
        ({name: 0.8001}, False),
        ({name: 0.9, "left": 5}, False),
        ({}, False),
    ):
        one = step(rows(8, 0.004))
        one.metrics, one.computed = {name: 0.8}, computed
        assert ("AT-METRICS-PADDED" in {finding.code for finding in diagnose_all([one])}) is expected


def test_the_temperature_is_the_one_that_the_trainer_assumes() -> None:
    agent = span("agent", None)
    call = llm(agent.span_id, 1, [1] * 4, range(40), inputs={"sampling_params": {"temperature": 0.7}})
    for assumed, expected in ((1.0, {"AT-SAMPLING-DIFFERS"}), (0.7, set()), (None, set())):
        made = examine(trajectory(agent, call), TrainerSettings(temperature=assumed))
        assert {mark.code for mark in made.marks if mark.code.startswith("AT-SAMPLING")} == expected
