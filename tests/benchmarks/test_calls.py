"""A call beside the commit before."""

from __future__ import annotations

from benchmarks.before import ROOT
from benchmarks.budgets import failures
from benchmarks.call_rows import NAMES, dearer
from benchmarks.calls import played

ROWS = ("function", "object")


def test_what_is_dearer_than_before_is_found_and_nothing_else() -> None:
    made = played(ROOT, ROWS, {"AUTOTRACE_BENCH_DELAY": "function=0.15"})
    assert [line.partition(":")[0] for line in dearer(made)] == [NAMES["function"]]
    assert made["object"]["x_before"] < 1.1 < made["function"]["x_before"]
    assert dearer(made)[0] in failures({"calls": made})


def test_without_the_commit_before_nothing_passes() -> None:
    assert "calls beside the commit before: not measured" in failures({"calls": {}})
