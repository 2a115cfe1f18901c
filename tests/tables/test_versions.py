"""Versions of a trajectory count within its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.tables.committed import Committed
from autotrace.tables.reader import Reader
from autotrace.tables.writer import Tables
from tests.tables.test_writer import made


def test_what_came_late_in_one_run_counts_there_alone(tmp_path: Path) -> None:
    """Its facts, and a late call that replaced its rows."""
    one, other = Tables(tmp_path / "one", "one"), Tables(tmp_path / "other", "other")
    for tables, run_id in ((one, "one"), (other, "other")):
        first = made()
        first.run_id = run_id
        tables.write([first])
    late = made(version=2, advantage=0.5)
    grown = made(version=3, advantage=0.25)
    for changed in (late, grown):
        changed.run_id = "one"
    one.write([late])
    reader = Reader([Committed(tmp_path / "one"), Committed(tmp_path / "other")])
    columns = ("run_id", "version", "advantage")
    assert [tuple(row) for row in reader.select(columns=columns)] == [("one", 2, 0.5), ("other", 1, None)]
    reader.close()
    grown.spans[-1].status = "ERROR"
    one.write([grown])
    reader = Reader([Committed(tmp_path / "one"), Committed(tmp_path / "other")])
    assert [tuple(row) for row in reader.select(columns=columns)] == [("one", 3, 0.25), ("other", 1, None)]
    calls = reader.sql("SELECT run_id, count(*) FROM spans GROUP BY run_id ORDER BY run_id").rows()
    assert [tuple(row) for row in calls] == [("one", len(grown.spans)), ("other", len(grown.spans))]
    reader.close()


@pytest.mark.parametrize("compacted", [False, True])
def test_files_of_facts_without_late_ones_are_known(tmp_path: Path, compacted: bool) -> None:
    """A question about what trajectories knew at first opens no facts."""
    tables = Tables(tmp_path, "run")
    tables.write([made()])
    tables.write([made(sample=18)])
    assert not Committed(tmp_path).late_facts()
    tables.write([made(version=2, advantage=0.5)])
    if compacted:
        tables.finish()
    assert len(Committed(tmp_path).late_facts()) == 1
