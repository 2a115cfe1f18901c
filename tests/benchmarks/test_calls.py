"""A call beside the commit before."""

from __future__ import annotations

from benchmarks.before import ROOT
from benchmarks.budgets import failures
from benchmarks.call_rows import NAMES, dearer
from benchmarks.calls import played

ROWS = ("function", "object")


def test_what_is_dearer_than_before_is_found_and_nothing_else() -> None:
    """Half as much again, which also a busy machine tells; ``AUTOTRACE_BENCH_DELAY=function=0.15 make bench-short``
    fails on one that is not."""
    made = played(ROOT, ROWS, {"AUTOTRACE_BENCH_DELAY": "function=0.5"})
    assert [line.partition(":")[0] for line in dearer(made)] == [NAMES["function"]]
    assert made["object"]["x_before"] < made["function"]["x_before"]
    assert dearer(made)[0] in failures({"calls": made})


def test_without_the_commit_before_nothing_passes() -> None:
    assert "calls beside the commit before: not measured" in failures({"calls": {}})


def test_a_cpu_on_which_the_commit_before_is_beyond_the_floor_too() -> None:
    """Where a row takes more than its floors, it is judged by the commit before, with the same room."""
    row = {"floor_us": 10.0, "noise": 0.01, "before_us": 35.0, "now_us": 36.0, "x_floor": 3.6, "x_before": 36 / 35}
    assert dearer({"llm": row}) == []
    (said,) = dearer({"llm": {**row, "before_us": 25.0, "x_before": 1.0}})
    assert said.endswith("3.60 x the floor, allowed 3.00 x")
