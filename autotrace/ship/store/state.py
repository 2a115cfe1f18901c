"""``state.db``: what the shipper has read and delivered. It can be rebuilt from the segments and the tables of the run,
except what the backends acknowledged.

One transaction per reading round stores how far each segment was read together with what was read there, so a
shipper killed at any point continues without losing or repeating a record. A trajectory's content stays in the
segments; here is where its records lie and one line about it. The tables: ``migrations``; delivery: ``delivery_queue``.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from array import array
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotrace.run import files, layout
from autotrace.run.drain import shipper_alive
from autotrace.ship.store import migrations
from autotrace.ship.store.row import COLUMNS, TraceRow

_log = logging.getLogger("autotrace.ship")

_ROW = ", ".join(COLUMNS)
_PUT_ROW = (
    f"INSERT INTO traces ({_ROW}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (trace_id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS if column != "trace_id")
)
"""Where a line is, it stays: it is not put at the end once more."""
TIMEOUT, TRIES = 20.0, 30
"""Seconds for which a transaction of another process is waited for, and how often."""
OffsetsOf = dict[int, list[int]]
"""Segment -> ascending offsets of records in it."""


def _refuse_strange(path: Path) -> None:
    """Raise ``sqlite3.OperationalError`` for a state that would have SQLite touch other files."""
    if why := files.strange_database(path):
        raise sqlite3.OperationalError(why)


def _refuse_shared_pages(db: sqlite3.Connection, path: str | Path) -> None:
    """Raise ``sqlite3.DatabaseError`` for a state whose trees share pages or go in circles: some KB of it would hold
    any number of rows, or a row of any size."""
    size = sum(os.path.getsize(file) for file in (str(path), f"{path}-wal") if os.path.exists(file))
    budget = iter(range(100 + size // 10_000))
    db.set_progress_handler(
        lambda: next(budget, None) is None, 10_000
    )  # the list of its tables may be such a tree, too
    try:
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except MemoryError:  # SQLite's own, of what a row claims to hold
        raise sqlite3.DatabaseError("it is damaged: it asks for more memory than there is") from None
    finally:
        db.set_progress_handler(None, 0)
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {found}")


_NO_ID = "typeof(trace_id) != 'text' OR length(CAST(trace_id AS BLOB)) != 32 OR trace_id GLOB '*[^0-9a-f]*'"


def _refuse_strange_ids(db: sqlite3.Connection) -> None:
    """Raise ``sqlite3.DatabaseError`` for a state in which a trace is called by something else than an id."""
    for table in ("traces", "joins", "requests"):
        if db.execute(f"SELECT 1 FROM {table} WHERE {_NO_ID} LIMIT 1").fetchone():
            raise sqlite3.DatabaseError(f"it is damaged: a trace_id in {table} is no id")


class State:
    """One connection to the state of a run. Not thread-safe. Writes belong to the holder of
    ``shipper.lock``."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, timeout=TIMEOUT, isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        try:
            _refuse_shared_pages(self.db, path)
            self.db.execute("PRAGMA journal_mode=WAL")
            # Killed processes lose nothing with NORMAL; a power cut may lose the last rounds, which are then read again
            self.db.execute("PRAGMA synchronous=NORMAL")
            migrations.migrate(self.db)
            _refuse_strange_ids(self.db)
        except BaseException:
            self.db.close()
            raise

    @classmethod
    def of_run(cls, run_folder: str | Path) -> State:
        """Open or create the state of ``run_folder``. Raises ``sqlite3.Error`` when the folder cannot be written, or
        its state is not one of ours, and the subclass ``NewerDatabase``."""
        path = Path(run_folder, layout.STATE_DB)
        _refuse_strange(path)
        files.ensure(path)
        return cls(str(path))

    @classmethod
    def read_only(cls, run_folder: str | Path) -> State:
        """The state of ``run_folder`` for who must write nothing there; that of an earlier release, and of a shipper
        that died, as a copy in memory. Raises ``sqlite3.Error`` where there is none that can be read so."""
        path = Path(run_folder, layout.STATE_DB).absolute()
        _refuse_strange(path)
        journal = Path(f"{path}-wal").exists()  # else nobody is writing, and SQLite would make one in order to read
        if journal and not shipper_alive(str(run_folder)):
            return cls._left_behind(path)
        state = cls.__new__(cls)
        address = f"{path.as_uri()}?mode=ro{'' if journal else '&immutable=1'}"
        state.db = sqlite3.connect(address, uri=True, timeout=TIMEOUT, isolation_level=None, check_same_thread=False)
        state.db.row_factory = sqlite3.Row
        try:
            if not shipper_alive(str(run_folder)):  # else it is this machine's own
                _refuse_shared_pages(state.db, path)
            if migrations.is_older(state.db):
                state = state.copy()
            _refuse_strange_ids(state.db)
        except BaseException:
            state.db.close()
            raise
        return state

    @classmethod
    def _left_behind(cls, path: Path) -> State:
        """The state that a dead shipper left, from a copy: SQLite writes into the journal's files in order to read."""
        with tempfile.TemporaryDirectory(prefix="autotrace-") as folder:
            try:
                for name in (path.name, f"{path.name}-wal"):
                    with os.fdopen(files.reading(path.parent, name), "rb") as of, Path(folder, name).open("wb") as to:
                        shutil.copyfileobj(of, to)
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error
            return cls(str(Path(folder, path.name))).copy()

    def copy(self) -> State:
        """The same in memory, which may be written. The connection of this one is closed."""
        copied = State(":memory:")
        try:
            self.db.backup(copied.db)
            migrations.migrate(copied.db)
        finally:
            self.close()
        return copied

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def __enter__(self) -> State:
        """Begin a transaction, once no other process has one. Raises ``sqlite3.OperationalError`` after minutes. No
        rows of a query may be left to read."""
        tries = 0
        while True:
            try:
                self.db.execute("BEGIN IMMEDIATE")
                return self
            except sqlite3.OperationalError as error:
                tries += 1
                if tries == TRIES or "locked" not in str(error):
                    raise
                _log.warning("another process has been writing into %s for long: waiting", layout.STATE_DB)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            migrations.roll_back(self.db)
            return
        try:
            self.db.execute("COMMIT")
        except sqlite3.Error:
            migrations.roll_back(self.db)
            raise

    # -- values by key -------------------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """A remembered value."""
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Remember a value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def metas(self, prefix: str) -> dict[str, str]:
        """Remembered values whose key begins with ``prefix``, without it."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        rows = self.db.execute("SELECT key, value FROM meta WHERE key >= ? AND key < ?", (prefix, after))
        return {row[0][len(prefix) :]: row[1] for row in rows}

    # -- segments ------------------------------------------------------------------------------------------------------

    def segments(self) -> dict[str, sqlite3.Row]:
        """All segments by name."""
        return {row["name"]: row for row in self.db.execute("SELECT * FROM segments")}

    def removed(self, trace_id: str) -> bool:
        """Whether a part of a trace was removed."""
        return self.db.execute("SELECT 1 FROM removed WHERE trace_id = ?", (trace_id,)).fetchone() is not None

    # -- traces --------------------------------------------------------------------------------------------------------

    def row(self, trace_id: str) -> TraceRow | None:
        """The line about a trace."""
        row = self.db.execute(f"SELECT {_ROW} FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return None if row is None else TraceRow.of(row)

    def rows(self, where: str = "1", values: Sequence[Any] = ()) -> list[TraceRow]:
        """Lines that satisfy ``where`` (SQL, never user input; values are bound)."""
        return [TraceRow.of(row) for row in self.db.execute(f"SELECT {_ROW} FROM traces WHERE {where}", values)]

    def put_rows(self, rows: Iterable[TraceRow]) -> None:
        """Store the lines about some traces."""
        self.db.executemany(_PUT_ROW, (row.values() for row in rows))

    def put_counts(self, rows: Iterable[TraceRow]) -> None:
        """Store what further calls change of lines that are there: how many calls there are."""
        counts = ((row.spans, row.turns, row.tool_calls, row.late_spans, row.trace_id) for row in rows)
        sql = "UPDATE traces SET spans = ?, turns = ?, tool_calls = ?, late_spans = ? WHERE trace_id = ?"
        self.db.executemany(sql, counts)

    def put_offsets(self, offsets_of: Mapping[tuple[str, int], array[int]]) -> None:
        """Remember where records lie: (trace id, segment) -> offsets."""
        rows = ((*place, offsets.tobytes()) for place, offsets in offsets_of.items())
        self.db.executemany("INSERT INTO places VALUES (?, ?, ?)", rows)

    def offsets_of(self, trace_id: str) -> OffsetsOf:
        """Where the records of a trace lie."""
        by_segment: dict[int, set[int]] = {}
        for segment, offsets in self.db.execute("SELECT segment, offsets FROM places WHERE trace_id = ?", (trace_id,)):
            by_segment.setdefault(segment, set()).update(array("q", offsets))
        return {segment: sorted(offsets) for segment, offsets in by_segment.items()}

    # -- groups --------------------------------------------------------------------------------------------------------

    def kept(self, group: str) -> str | None:
        """What was decided about a group (``TraceRow.kept``)."""
        row = self.db.execute("SELECT kept FROM traces WHERE group_key = ? AND kept IS NOT NULL", (group,)).fetchone()
        return None if row is None else str(row[0])

    def group(self, group: str) -> list[TraceRow]:
        """All trajectories of a group."""
        return self.rows("group_key = ?", (group,))

    def decide(self, group: str, kept: str) -> None:
        """Store the decision about a group with its trajectories."""
        self.db.execute("UPDATE traces SET kept = ? WHERE group_key = ?", (kept, group))

    def count(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The number that the query ``sql`` (never user input) returns; 0 for NULL."""
        return int(self.db.execute(sql, values).fetchone()[0] or 0)


class Memory(UserDict[str, str]):
    """What a sink must remember for the next process: text by name, stored at once.

    Used in the sink's thread, so each change is a connection of its own; there are a handful in a run.
    """

    def __init__(self, state: State, prefix: str) -> None:
        super().__init__()
        self.data = state.metas(prefix)
        self._path = str(state.db.execute("PRAGMA database_list").fetchone()["file"])
        self._prefix = prefix

    def __setitem__(self, key: str, value: str) -> None:
        if self.get(key) == value:
            return
        self._store("INSERT OR REPLACE INTO meta VALUES (?, ?)", self._prefix + key, value)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._store("DELETE FROM meta WHERE key = ?", self._prefix + key)

    def _store(self, sql: str, *values: str) -> None:
        db = sqlite3.connect(self._path, timeout=TIMEOUT, isolation_level=None)
        try:
            db.execute(sql, values)
        finally:
            db.close()
