"""What delivery is to cost, and the verdict about what it does: rows of the table of ``delivery``.

The goals were set beside what was measured on that day, in microseconds of CPU a span: assembled 200 -> 50, JSON lines
225 to 324 -> 80, MLflow 3,706 -> 300, Weave 592 -> 250. How many times less is *wanted* is the one over the other,
with the middle of 225 and 324: 4, 3.4, 12.4 and 2.4. Parquet was not there; it is judged beside what assembling cost,
which every backend paid: 200 -> 60, so 3.3. Of an MLflow server only the rate was known, so no ratio is wanted there.
Into PostgreSQL MLflow's store class writes, so that row has no ratio either.

A machine that is shared is faster or slower by the hour; two versions that deliver the same spool in turns are so
together. *Times less* is therefore the steadiest figure here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.budgets import AT_REFERENCE
from benchmarks.ship_program import NOWHERE, REAL, WITHOUT_FINDINGS

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A backend, and what it is to cost."""

    goal: float
    """Microseconds of the shipper's CPU a span, at 20 turns."""
    today: float | None
    """What it cost on the day the goal was set; None: not known."""
    trajectories: int
    backend: str
    sink: str = REAL
    """See ``ship_program``."""
    before: str | None = None
    """The case that the code before is measured with; None: the same."""

    @property
    def wanted(self) -> float | None:
        """Times less than before it is to cost."""
        return None if self.today is None else self.today / self.goal


ASSEMBLED = "assembled"
CASES = {
    ASSEMBLED: Case(50, 200, 400, "jsonl", WITHOUT_FINDINGS),
    "assembled with findings": Case(50, 200, 400, "jsonl", NOWHERE, before=ASSEMBLED),
    "jsonl": Case(80, (225 + 324) / 2, 400, "jsonl"),
    "parquet": Case(60, 200, 400, "parquet", before=ASSEMBLED),
    "mlflow": Case(300, 3706, 60, "mlflow"),
    "mlflow postgresql": Case(4_000, None, 40, "mlflow"),
    "mlflow server": Case(200, None, 40, "mlflow"),
    "weave": Case(250, 592, 100, "weave"),
}
"""*assembled*: indexed, put together and decoded, for a backend that takes no time. Findings are there since, and have
a budget of their own (``live_findings.py``); all other rows are with findings, as users have them."""

LINEAR = 4.5
"""Times as much a trajectory of 80 turns may cost as one of 20."""
BACKLOG, BACKLOG_MB = 40_000, 256
"""Traces of one call each that wait, and what the shipper may take in front of them."""


def cost(case: Case, now: Row, before: Row | None) -> Row:
    """One backend's row. ``now`` and ``before`` have ``cpu_us_per_span``, the same at reference speed,
    ``spans_per_s`` and ``peak_mb``: medians of one run."""
    row = {
        "goal_us": case.goal,
        "before_us": None if before is None else before["cpu_us_per_span"],
        "now_us": now["cpu_us_per_span"],
        f"now_us{AT_REFERENCE}": now[f"cpu_us_per_span{AT_REFERENCE}"],
        "times_less": None if before is None else before["cpu_us_per_span"] / now["cpu_us_per_span"],
        "times_wanted": case.wanted,
        "before_spans_per_s": None if before is None else before["spans_per_s"],
        "now_spans_per_s": now["spans_per_s"],
        "peak_mb": now["peak_mb"],
    }
    return row | {"met": verdict(row)}


def verdict(row: Row) -> str:
    """Of a row of ``cost``: by what was measured, by that at reference speed, by how many times less it is."""
    if row["now_us"] <= row["goal_us"]:
        return "met"
    if row[f"now_us{AT_REFERENCE}"] <= row["goal_us"]:
        return "met at reference speed"
    less, wanted = row["times_less"], row["times_wanted"]
    return "met beside before" if less is not None and wanted is not None and less >= wanted else "not met"


def linearity(now: float, before: float | None) -> Row:
    """Times as much that a trajectory of many turns costs."""
    return {"goal_x": LINEAR, "before_x": before, "now_x": now, "met": "met" if now <= LINEAR else "not met"}


def backlog(shipped: Row) -> Row:
    """Memory in front of many short traces."""
    peak = shipped["peak_mb"]
    row = {"goal_mb": BACKLOG_MB, "peak_mb": peak, "now_us": shipped["cpu_us_per_span"]}
    return row | {"now_spans_per_s": shipped["spans_per_s"], "met": "met" if peak <= BACKLOG_MB else "not met"}
