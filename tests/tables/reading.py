"""The tables of a run folder as ``tables.commits`` promises them to whoever reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from autotrace.tables.arrow import arrow_schema, from_rows
from autotrace.tables.commits import FILE, FOLDER, Snapshot, snapshot
from autotrace.tables.rebuild import Row, rebuilt, rows_of
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import OF_TRAJECTORIES, TABLES
from autotrace.trajectory.model import Trajectory


def tables(trajectories: Iterable[Trajectory]) -> dict[str, pa.Table]:
    """The tables of ``trajectories``, by name."""
    rollouts = [Rollout(one) for one in trajectories]
    return {name: from_rows(table.columns, table.rows(rollouts)) for name, table in OF_TRAJECTORIES.items()}


def in_rows(trajectories: Iterable[Trajectory]) -> dict[str, Iterable[Row]]:
    """Their rows, as trajectories are made of."""
    return {name: rows_of(made) for name, made in tables(trajectories).items()}


def committed(folder: Path) -> Snapshot:
    """What counts in ``folder``, where ``tables`` is."""
    path = folder / FOLDER / FILE
    return snapshot(path.read_bytes() if path.exists() else b"")


def table(folder: Path, name: str) -> pa.Table:
    """The rows that count."""
    found = committed(folder)
    parts = [pq.read_table(folder / FOLDER / path) for path in found.files.get(name, ())]
    rows = pa.concat_tables(
        [arrow_schema(TABLES[name].columns).empty_table(), *(part.replace_schema_metadata() for part in parts)]
    )
    if name not in OF_TRAJECTORIES:
        return rows
    kept = [
        version >= found.superseded.get(trace_id, 0)
        for trace_id, version in zip(rows["trace_id"].to_pylist(), rows["version"].to_pylist(), strict=True)
    ]
    return rows.filter(pa.array(kept, pa.bool_()))


def rows(folder: Path, name: str = "trajectories") -> list[dict[str, Any]]:
    """The same as dictionaries."""
    made: list[dict[str, Any]] = table(folder, name).to_pylist()
    return made


def trajectories(folder: Path) -> dict[str, Trajectory]:
    """All of them; none may be there twice."""
    made = rebuilt({name: rows_of(table(folder, name)) for name in OF_TRAJECTORIES})
    by_id = {one.trace_id: one for one in made}
    assert len(by_id) == len(made), "a trajectory is there twice"
    return by_id
