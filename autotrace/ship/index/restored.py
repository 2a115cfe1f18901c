"""A state that was lost, made again of the tables: the segments of what is in them may be gone."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec

from autotrace.ship.index.summary import summarise
from autotrace.ship.store.row import ALL, Row
from autotrace.ship.store.state import State
from autotrace.tables.committed import Committed
from autotrace.tables.engine import read
from autotrace.tables.trajectories import TRAJECTORIES

AT_ONCE = 100
"""Trajectories in memory."""


def restore(state: State, run_folder: Path) -> None:
    """Fill ``state``, if it is new, with what the tables have. Raises ``OSError`` or ``QueryError``."""
    if state.count("SELECT EXISTS (SELECT 1 FROM segments)"):
        return
    tables, offsets = Committed(run_folder), count()
    paths = tables.files(TRAJECTORIES.name)
    found = tables.asked(f"SELECT DISTINCT trace_id FROM {read(paths)} ORDER BY trace_id") if paths else []
    with state:
        for start in range(0, len(found), AT_ONCE):
            for one in tables.load([trace_id for (trace_id,) in found[start : start + AT_ONCE]]).values():
                row = Row(one.trace_id, kept=ALL, complete=True, version=one.version, late_spans=one.late_spans)
                summarise(row, one)
                row.profile, row.attempt, row.group_key = one.profile, one.attributes.get("attempt", 1), row.group
                state.put_rows([row])
                state.db.execute("INSERT INTO removed VALUES (?)", (one.trace_id,))
                state.db.executemany(
                    "INSERT INTO facts (segment, offset, trace_id, name, value, at_ns) VALUES (0, ?, ?, ?, ?, 0)",
                    (
                        (next(offsets), one.trace_id, name, msgspec.msgpack.encode(value))
                        for name, value in one.facts.items()
                    ),
                )
    tables.close()
