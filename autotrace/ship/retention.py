"""Retention in the spool of a run with ``--spool-limit``: segments that nothing waits for are removed, oldest first.

A segment is removed when its writer will not append to it and each trajectory in it is complete, decided on and in no
backend's queue. A fact that is reported about such a trajectory later stays in the state and is not delivered: the
trajectory could not be assembled again.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from autotrace.config.plan import Plan
from autotrace.run import files, layout
from autotrace.ship.store.state import State
from autotrace.spool.limit import BEGIN, END, LOOK_EVERY
from autotrace.spool.reader import SegmentFile, segments

_log = logging.getLogger("autotrace.ship")

REMOVED = "removed"
"""The seal of a removed segment in the state."""
BYTES = "spool:removed_bytes"
"""Key in the state: bytes removed so far."""


class Retention:
    """Of one run; ``make_room`` is called between two rounds of the shipper."""

    def __init__(self, state: State, run_folder: str | Path) -> None:
        self._state = state
        self._run_folder = run_folder
        self._limit = spool_limit(Path(run_folder))
        self._looked = -LOOK_EVERY

    def make_room(self) -> int:
        """Remove what may go, if it is time to; bytes removed."""
        now = time.monotonic()
        if not self._limit or now - self._looked < LOOK_EVERY:
            return 0
        self._looked = now
        files = segments(self._run_folder)
        total = sum(file.size for file in files)
        if total <= BEGIN * self._limit:
            return 0
        removed = 0
        for file, id in self._removable(files):
            if total - removed <= END * self._limit:
                break
            if self._remove(file, id):
                removed += file.size
        return removed

    def _removable(self, files: list[SegmentFile]) -> list[tuple[SegmentFile, int]]:
        ended = {row[0] for row in self._state.db.execute("SELECT process FROM processes WHERE ended IS NOT NULL")}
        awaited = {row[0] for row in self._state.db.execute(
            "SELECT DISTINCT segment FROM places LEFT JOIN traces USING (trace_id) WHERE coalesce(complete, 0) = 0 "
            "OR kept IS NULL OR trace_id IN (SELECT trace_id FROM queue)"
        )}  # fmt: skip
        rows = self._state.segments()
        removable = []
        for file in sorted(files, key=lambda file: file.changed_ns):
            row = rows.get(file.name)
            if row is None or row["id"] in awaited or row["header"] is None:
                continue
            if file.process in ended or (row["sealed"] is not None and row["offset"] >= file.size):
                removable.append((file, row["id"]))
        return removable

    def _remove(self, file: SegmentFile, id: int) -> bool:
        with self._state:  # first: what is remembered as removed is never assembled from the rest
            self._state.remove_segment(id, REMOVED)
            self._state.put_meta(BYTES, str(int(self._state.meta(BYTES) or 0) + file.size))
        try:
            os.unlink(os.path.join(layout.spool_of(str(self._run_folder)), file.name))
        except OSError as error:
            _log.warning("cannot remove %s: %s", file.name, error)
            return False
        return True


def spool_limit(run_folder: Path) -> int:
    """``--spool-limit`` of the run in bytes; 0: none, or its plan cannot be read."""
    try:
        return Plan.loads(files.read(run_folder, layout.PLAN_JSON)).settings.spool_limit
    except (OSError, ValueError):
        return 0
