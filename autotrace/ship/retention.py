"""Remove segments from the spool of a run once their trajectories are in the tables and delivered. Restore a lost state
from the tables (``restore``).

A segment is removed when its writer will not append to the segment, all records were read, each trajectory of the
segment is in the tables, and no backend waits for a trajectory. At the end of the run all such segments are removed.
While the run goes on, a segment stays for ``HOLD`` seconds: late calls and the trainer's values of tokens rebuild a
trajectory, which takes ten times as long from the tables. ``--spool-limit`` removes segments earlier, oldest first, and
``--keep-spool`` keeps all segments.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import files, layout
from autotrace.run.info import plan_of
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.row import ALL, TraceRow
from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.reader import SegmentFile, segments
from autotrace.spool.writer import LOOK_EVERY, REMOVE_ABOVE, REMOVE_TO
from autotrace.tables.committed import Committed
from autotrace.tables.connection import read
from autotrace.tables.rollout import Rollout
from autotrace.tables.storage import sync
from autotrace.tables.trajectories import TRAJECTORIES

AT_ONCE = 100
"""Load at most so many trajectories into memory."""


_ABOUT = ("processes", "reports", "binds")
"""List the tables of the state about the run rather than its trajectories: counters of processes, targets, reports."""


def _keep_about(state: State, run_folder: Path) -> None:
    """Write the records that are not about trajectories to a file before the segments go."""
    about = {name: list(map(dict, state.db.execute(f"SELECT * FROM {name}"))) for name in _ABOUT}
    with contextlib.suppress(OSError):  # on a full disk only the state has the records: removing segments makes room
        files.replace(run_folder / layout.ABOUT, msgspec.msgpack.encode(about))
        sync(run_folder / layout.ABOUT)


def _restore_about(state: State, run_folder: Path) -> None:
    state.db.execute("SAVEPOINT about")
    try:
        about = msgspec.msgpack.decode(files.read(run_folder, layout.ABOUT), type=dict[str, list[dict[str, Any]]])
        for name in _ABOUT:
            columns = [column["name"] for column in state.db.execute(f"PRAGMA table_info({name})")]
            for row in about[name]:
                given = [column for column in columns if column in row]
                for blob in (row[column] for column in given if isinstance(row[column], bytes)):
                    msgspec.msgpack.decode(blob, type=dict[str, Any])
                sql = f"INSERT OR REPLACE INTO {name} ({', '.join(given)}) VALUES ({', '.join('?' * len(given))})"
                state.db.execute(sql, [row[column] for column in given])
    except FileNotFoundError:
        pass
    except (OSError, LookupError, msgspec.MsgspecError, sqlite3.Error) as error:  # no trajectory depends on the file
        state.db.execute("ROLLBACK TO about")
        _log.warning("%s cannot be read: %s", layout.ABOUT, error)
    state.db.execute("RELEASE about")


def restore(state: State, run_folder: Path) -> None:
    """Fill a new ``state`` from the tables. Raises ``OSError`` or ``QueryError``."""
    if state.count("SELECT EXISTS (SELECT 1 FROM segments) OR EXISTS (SELECT 1 FROM traces)"):
        return
    from autotrace.ship.index.summary import summarise  # with all detectors, which commands do without

    tables, offsets = Committed(run_folder), count()
    paths = tables.files(TRAJECTORIES.name)
    found = tables.asked(f"SELECT DISTINCT trace_id FROM {read(paths)} ORDER BY trace_id") if paths else []
    with state:
        _restore_about(state, run_folder)
        for start in range(0, len(found), AT_ONCE):
            for one in tables.stored([trace_id for (trace_id,) in found[start : start + AT_ONCE]]).values():
                row = TraceRow(one.trace_id, kept=ALL, complete=True, version=one.version, late_spans=one.late_spans)
                summarise(row, one)
                row.profile, row.attempt = one.profile, one.attributes.get("attempt", 1)
                row.group_key = Rollout(one).group_id
                state.put_rows([row])
                state.db.execute("INSERT INTO removed VALUES (?)", (one.trace_id,))
                facts = {name: msgspec.msgpack.encode(value) for name, value in one.facts.items()}
                sql = "INSERT INTO facts (segment, offset, trace_id, name, value, at_ns) VALUES (0, ?, ?, ?, ?, 0)"
                state.db.executemany(sql, ((next(offsets), one.trace_id, *fact) for fact in facts.items()))
    tables.close()


_log = logging.getLogger("autotrace.ship")

REMOVED = "removed"
"""Seal a removed segment in the state: the segment counts as sealed, and its traces are read from the tables."""
HOLD = 600.0
"""Remove a segment so many seconds after its last change, when few late records are expected."""
EVERY = 60.0
"""Wait so many seconds between two looks without ``--spool-limit``."""
_AWAITED = """
SELECT {segment} FROM {rows} LEFT JOIN traces t USING (trace_id)
LEFT JOIN deliveries d ON d.trace_id = t.trace_id AND d.backend = ?
WHERE {of} AND ifnull(t.complete AND t.kept IS NOT NULL AND d.version >= t.version AND d.rejected IS NULL
    AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.trace_id = t.trace_id), {unknown}) = 0 GROUP BY {segment}
"""
"""Select segments that something waits for."""


class Retention:
    """Remove segments; ``make_room`` is called between two rounds of the shipper."""

    def __init__(self, state: State, run_folder: str | Path, has_news: Callable[[SegmentFile], bool]) -> None:
        """Set up the retention. ``has_news``: whether a segment has unread records."""
        self._state = state
        self._run_folder = Path(run_folder)
        self._has_news = has_news
        settings = plan_of(self._run_folder, keep_spool=True).settings  # else nothing is removed
        self._limit, self._keep = settings.spool_limit, settings.keep_spool
        self._every = LOOK_EVERY if self._limit else EVERY
        self._looked = time.monotonic()

    def make_room(self, over: bool = False) -> int:
        """Remove segments if a look is due; return the bytes removed. ``over``: the run has ended, and its shipper
        ends."""
        now = time.monotonic()
        if not over and now - self._looked < self._every:
            return 0
        self._looked = now
        found = segments(self._run_folder)
        left = total = sum(file.size for file in found)
        pressed = bool(self._limit) and total > REMOVE_ABOVE * self._limit
        if not pressed and self._keep:
            return 0
        for file, id, rests in self._removable(found, over):
            needed = pressed and left > REMOVE_TO * self._limit
            if (needed or ((rests or over) and not self._keep)) and self._remove(file, id, first=left == total):
                left -= file.size
        return total - left

    def _removable(self, found: list[SegmentFile], over: bool) -> Iterator[tuple[SegmentFile, int, bool]]:
        """Yield segments that nothing waits for, the oldest first, and whether few late records are expected."""
        db = self._state.db
        ended = {row[0] for row in db.execute("SELECT process FROM processes WHERE ended IS NOT NULL")}
        since = time.time_ns() - int(HOLD * 1e9)
        records = _AWAITED.format(segment="places.segment", rows="places", unknown=1, of="1")
        # the trainer's values of tokens are in the segments of the trainer
        columns = _AWAITED.format(segment="f.segment", rows="facts f", unknown=int(over), of="f.name = ?")
        known = [*db.execute(records, (TABLES,)), *db.execute(columns, (TABLES, token_facts.TOKEN_FACTS))]
        awaited = {segment for (segment,) in known}
        rows = self._state.segments()
        for file in sorted(found, key=lambda file: file.changed_ns):
            row = rows.get(file.name)
            if row is None or row["id"] in awaited or row["header"] is None or self._has_news(file):
                continue
            if file.process in ended or (row["sealed"] is not None and row["offset"] >= file.size):
                yield file, row["id"], file.changed_ns < since

    def _remove(self, file: SegmentFile, id: int, first: bool) -> bool:
        db = self._state.db
        try:
            if first:
                _keep_about(self._state, self._run_folder)
            db.execute("PRAGMA synchronous=FULL")  # the segment goes for good: so must this
            with self._state:  # before the file: an assembly never reads the rest of a removed segment
                db.execute("UPDATE segments SET sealed = ? WHERE id = ?", (REMOVED, id))
                db.execute("INSERT OR IGNORE INTO removed SELECT trace_id FROM places WHERE segment = ?", (id,))
                for table in ("places", "defines"):
                    db.execute(f"DELETE FROM {table} WHERE segment = ?", (id,))
            os.unlink(os.path.join(layout.spool_of(str(self._run_folder)), file.name))
        except (OSError, sqlite3.Error) as error:
            _log.warning("cannot remove %s: %s", file.name, error)
            return False
        finally:
            db.execute("PRAGMA synchronous=NORMAL")
        return True
