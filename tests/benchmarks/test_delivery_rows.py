"""What the table of the shipper says of a backend."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import report
from benchmarks.budgets import AT_REFERENCE
from benchmarks.delivery_rows import CASES, cost, linearity


def taken(us: float, at_reference: float) -> dict[str, Any]:
    return {
        "cpu_us_per_span": us, f"cpu_us_per_span{AT_REFERENCE}": at_reference, "spans_per_s": 1e6 / us, "peak_mb": 90.0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("now", "at_reference", "before", "met"),
    [
        (80, 70, 160, "met"),
        (160, 80, 320, "met at reference speed"),
        (160, 90, 560, "met beside before"),
        (160, 90, 540, "not met"),
        (160, 90, None, "not met"),
    ],
)
def test_verdicts(now: float, at_reference: float, before: float | None, met: str) -> None:
    row = cost(CASES["jsonl"], taken(now, at_reference), None if before is None else taken(before, before))
    assert row["met"] == met
    assert row["times_less"] == (None if before is None else before / now)


def test_how_many_times_less_is_wanted_follows_from_the_goals() -> None:
    wanted = {name: case.wanted and round(case.wanted, 1) for name, case in CASES.items()}
    assert wanted == {
        "assembled": 4.0, "assembled with findings": 4.0, "jsonl": 3.4, "parquet": 3.3, "mlflow": 12.4,
        "mlflow postgresql": None, "mlflow server": None, "weave": 2.4,
    }  # fmt: skip


def test_no_ratio_is_wanted_where_only_the_rate_was_known() -> None:
    assert cost(CASES["mlflow server"], taken(300, 250), taken(30_000, 25_000))["met"] == "not met"


def test_columns_that_nothing_was_measured_for_are_left_out() -> None:
    both = cost(CASES["jsonl"], taken(160, 90), taken(560, 300))
    rows = {"jsonl": both, "jsonl, 80 turns over 20, a trajectory": linearity(4.0, None)}
    costs, growth = report.delivery(rows)
    assert costs.head[1:5] == ["goal, us", "before, us", "now, us", "at reference speed"]
    assert dict(zip(costs.head, costs.rows[0], strict=True))["times less"] == "3.5"
    assert growth.head == ["", "goal, x", "now, x", ""]
    (alone, _) = report.delivery({**rows, "jsonl": cost(CASES["jsonl"], taken(160, 90), None)})
    assert not [head for head in alone.head if "before" in head or head == "times less"]
