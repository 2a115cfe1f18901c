"""Summaries of trajectories: what is looked at again, and what is known already."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotrace.insight import profile
from autotrace.ship.index import summary
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.tables.conditions import equals
from tests.ship.spools import Process, new_run, trajectory


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trace ids of those that were examined."""
    seen: list[str] = []
    examine = summary.examine

    def counting(one: Any, settings: Any) -> profile.Profile:
        seen.append(one.trace_id)
        return examine(one, settings)

    monkeypatch.setattr(summary, "examine", counting)
    return seen


def codes(run: Path, trace: str) -> list[str]:
    with closing(of_run(run)) as reader:
        (row,) = reader.select(equals(trace_id=trace))
        return row.findings or []


def later(run: Path, number: int, **facts: Any) -> None:
    process = Process(run, f"node-1-later{number}")
    for name, value in facts.items():
        process.fact(name, value, TRACE)
    process.exit()
    assert ship(run, once=True).state == "done"


TRACE = bytes(15) + b"\x01"


def test_a_late_fact_does_not_have_a_trajectory_examined_again(tmp_path: Path, examined: list[str]) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    trajectory(process, trace=TRACE, reward=None)
    process.exit()
    assert ship(run, once=True).state == "done"
    assert examined == [TRACE.hex()]
    later(run, 1, advantage=0.5, trained_in_step=1)
    assert examined == [TRACE.hex()]
    later(run, 2, reward=math.nan)
    assert "AT-REWARD-NAN" in codes(run, TRACE.hex()), "the step shows it"
    later(run, 3, advantage=0.25)
    assert "AT-REWARD-NAN" in codes(run, TRACE.hex())
    assert examined == [TRACE.hex()]


def test_more_of_the_records_does(tmp_path: Path, examined: list[str]) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    trajectory(process, trace=TRACE)
    process.exit()
    assert ship(run, once=True).state == "done"
    more = Process(run, "node-1-records")
    more.close(TRACE, more.open(TRACE, "tool", inputs={"name": "late"}), output="4")
    more.exit()
    assert ship(run, once=True).state == "done"
    assert len(examined) == 2
