"""A call beside the commit before, and the ratios that CI holds."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.before import ROOT
from benchmarks.budgets import TIMES, failures
from benchmarks.call_rows import DELAY, NAMES, dearer
from benchmarks.calls import MOST, STARTS, played

ROWS = ("function", "object")


def test_what_is_dearer_than_before_is_found_and_nothing_else() -> None:
    """Half as much again, which also a busy machine tells; ``AUTOTRACE_BENCH_DELAY=function=0.15 make bench-short``
    fails on one that is not."""
    made = played(ROOT, ROWS, {DELAY: "function=0.5"})
    (said,) = dearer(made).values()
    assert said.startswith(NAMES["function"]) and f"in each of {MOST} starts" in said
    assert made["object"]["x_before"] < made["function"]["x_before"]
    assert made["object"]["starts"] >= STARTS
    assert failures({"calls": made}, _never) == [said]


def test_a_row_may_cost_several_floors() -> None:
    row = {"now_us": 36.0, "starts": 2, "least_x_before": 1.0, "least_x_floor": 3.6}
    assert dearer({"llm": row}) == {}
    assert dearer({"llm": {**row, "least_x_floor": 4.1}})["llm"].endswith("4.10 x floor or more, allowed 4 x")
    assert dearer({"object": {**row, "least_x_floor": 9.0}}) == {}


def test_without_the_commit_before_nothing_passes() -> None:
    assert failures({"calls": {}}, _never) == ["calls beside the commit before: not measured"]


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
