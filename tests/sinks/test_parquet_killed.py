"""Parquet files after a SIGKILL: what our own readers see at once, and everybody after the next shipper has begun."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from autotrace.sinks.parquet import journal
from autotrace.sinks.parquet.location import VARIABLE
from autotrace.sinks.parquet.partition import Partition
from autotrace.sinks.parquet.sink import ParquetSink
from autotrace.sinks.parquet.store import LocalStore
from autotrace.sinks.protocol import Refused
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.trajectory.model import Trajectory
from tests.sinks.rollouts import group, info, trajectory

RUN = "20261121-1"


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ParquetSink]:
    """``sink()``: as a new shipper of the run makes it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / RUN).mkdir()
    return lambda: ParquetSink(info(run_id=RUN, project="p"), tmp_path / RUN, {})


def everybody(root: Path, table: str = "trajectories") -> pl.DataFrame:
    """What stands in the files."""
    return pl.read_parquet(f"{root}/parquet/{table}/**/*.parquet")


def ours(root: Path, table: str = "trajectories") -> pl.DataFrame:
    """What stands in the files that ``autotrace sql`` reads."""
    store = LocalStore(f"{root}/parquet")
    folder = os.path.dirname(Partition.of("p", RUN, 1).folders[table])
    paths = [f"{store.root}/{path}" for path in journal.visible(store, RUN, folder)]
    return pl.concat(map(pl.read_parquet, paths)) if paths else pl.DataFrame(schema={"trace_id": pl.String})


def killed(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch, target: Any, name: str, after: int) -> None:
    """Do ``work`` in another process, which dies when it has called ``target.name`` so often."""
    if (pid := os.fork()) == 0:
        calls, real = iter(range(10_000)), getattr(target, name)

        def dying(*args: Any, **options: Any) -> Any:
            if next(calls) >= after:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        monkeypatch.setattr(target, name, dying)
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("named", [1, 2, 3, 4], ids=lambda count: f"{count - 1} of 4 files have their names")
def test_a_delivery_that_was_killed_half_way_is_not_there(
    sink: Callable[[], ParquetSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    one = sink()
    one.deliver(group(1, 1))
    before = {table: everybody(tmp_path, table).height for table in OF_TRAJECTORIES}
    killed(lambda: one.deliver(group(1, 2)), monkeypatch, os, "replace", named)  # the first is the journal's
    assert {table: ours(tmp_path, table).height for table in OF_TRAJECTORIES} == before
    other = sink()
    other.deliver([trajectory(step=9)])
    for table in OF_TRAJECTORIES:
        assert set(everybody(tmp_path, table)["step"]) <= {1, 9}
        assert everybody(tmp_path, table).filter(step=1).height == before[table]
    other.deliver(group(1, 2))
    assert everybody(tmp_path).filter(step=1).height == 2 * before["trajectories"]


def test_a_late_fact_of_a_step_long_past_that_was_killed_half_way(
    sink: Callable[[], ParquetSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sink()
    late: list[Trajectory] = [trajectory(step=1, reward=1.0), trajectory(step=1, sample=2)]
    one.deliver(late)
    late[0].facts["advantage"] = 0.5
    killed(lambda: one.deliver(late[:1]), monkeypatch, Path, "unlink", 0)
    assert everybody(tmp_path).height == 4, "old and new are there"
    assert ours(tmp_path).height == 2 and ours(tmp_path)["advantage"].drop_nulls().to_list() == [0.5]
    for step in range(2, 14):  # by a shipper of an earlier release, which did not look: files that are newer
        path = tmp_path / f"parquet/trajectories/p/{RUN}/step-{step}/{(1 << 61) + step}-00000000.parquet"
        path.parent.mkdir()
        everybody(tmp_path).clear().write_parquet(path)
    sink().deliver([trajectory(step=20)])
    assert everybody(tmp_path).filter(step=1).height == 2
    assert everybody(tmp_path)["advantage"].drop_nulls().to_list() == [0.5]


@pytest.mark.parametrize("name", ["step-1/mine.parquet", "old/1-00000000.parquet", "step-1/more/1-00000000.parquet"])
def test_a_file_of_somebody_else_among_ours_is_named(
    sink: Callable[[], ParquetSink], tmp_path: Path, name: str
) -> None:
    sink().deliver(group(1, 1))
    stray = tmp_path / f"parquet/turns/p/{RUN}" / name
    stray.parent.mkdir(exist_ok=True)
    everybody(tmp_path).write_parquet(stray)
    with pytest.raises(Refused, match=rf"{name} is not a file of autotrace's.*move it away$"):
        sink().deliver(group(1, 2))
    stray.unlink()
    sink().deliver(group(1, 2))


@pytest.mark.parametrize("data", [b"", b"PAR1 and no more", None], ids=["empty", "cut", "another table"])
def test_a_damaged_file_is_named(sink: Callable[[], ParquetSink], tmp_path: Path, data: bytes | None) -> None:
    sink().deliver(group(1, 1))
    (file,) = tmp_path.glob("parquet/turns/**/*.parquet")
    if data is None:
        pl.DataFrame({"a": [1]}).write_parquet(file)
    else:
        file.write_bytes(data)
    with pytest.raises(Refused, match=rf"{file.name} is damaged; move it away.*autotrace export"):
        sink().deliver(group(1, 2))
