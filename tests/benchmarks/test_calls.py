"""A call beside the commit before, and the ratios that CI holds."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.before import ROOT
from benchmarks.budgets import RATIOS, TIMES, failures
from benchmarks.call_rows import DELAY, LIMIT, NAMES, dearer
from benchmarks.calls import MOST, played
from benchmarks.scenarios import SHORT

ROWS = ("function", "object")


def test_what_is_dearer_than_before_is_found_and_nothing_else() -> None:
    """A quarter as much again, which also a busy machine tells."""
    made = played(ROOT, ROWS, {DELAY: "function=0.25"})
    (said,) = dearer(made)
    assert said.startswith(NAMES["function"]) and f"(median of {MOST} starts)" in said
    assert failures({"calls": made}, _never) == [said]


def test_a_row_may_cost_several_floors() -> None:
    row = {"now_us": 36.0, "starts": 2, "x_before": 1.0, "x_floor": 3.6}
    assert dearer({"llm": row, "object": {**row, "x_floor": 9.0}}) == []
    before, floor = dearer({"llm": {**row, "x_before": 1.3, "x_floor": 4.1}})
    assert before.endswith(f"1.30 x before (median of 2 starts), allowed {LIMIT:g} x")
    assert floor.endswith("4.10 x floor (median of 2 starts), allowed 4 x")


def test_without_the_commit_before_nothing_passes() -> None:
    assert failures({"calls": {}}, _never) == ["calls beside the commit before: not measured"]


def test_each_ratio_is_measured_in_the_short_form() -> None:
    assert {"calls", *(ratio.scenario for ratio in RATIOS)} <= set(SHORT)


def _never(scenario: str) -> object:
    raise AssertionError(scenario)


def _bytes(ratio: float) -> dict[str, dict[str, float]]:
    return {"spool": {"ratio": ratio}}


def test_a_ratio_beyond_its_limit_once_is_measured_again() -> None:
    def measured(*ratios: float) -> tuple[list[str], int]:
        later: Iterator[float] = iter(ratios[1:])
        asked: list[str] = []

        def anew(scenario: str) -> object:
            asked.append(scenario)
            return _bytes(next(later))

        said = failures({"volume": _bytes(ratios[0])}, anew)
        assert set(asked) <= {"volume"}
        return said, 1 + len(asked)

    assert measured(1.2) == ([], 1)
    assert measured(1.9, 1.2) == ([], 2)
    assert measured(1.9, 1.8, 1.2) == ([], 3)
    assert measured(1.9, 1.8, 1.7) == (["spool bytes / each token and text once: 1.7, allowed 1.3"], TIMES)


def test_what_cannot_be_measured_does_not_pass() -> None:
    assert failures({"volume": {}}, lambda _: {}) == ["spool bytes / each token and text once: not measured"]


def test_a_peer_that_costs_nothing_proves_nothing() -> None:
    (ratio,) = (one for one in RATIOS if one.name == "LLM call / veRL on MLflow")
    for ns, said in ((49.0, "not measured"), (50.0, "not measured"), (150.0, "8.5, allowed 0.05")):
        group = {"bare call": {"ns": 50.0}, "autotrace": {"ns": 900.0}, "veRL on MLflow": {"ns": ns}}
        assert ratio.said({"llm": {"2k+2k": group}}) == f"{ratio.name}: {said}"
