"""Store in ``state.db`` how far the shipper has read and delivered. The segments and tables of the run can restore
everything except the acknowledgements of the backends.

One transaction per reading round stores how far each segment was read together with the lines that were read, so a
shipper killed at any point continues without losing or repeating a record. A trajectory's content stays in the
segments. The state has the places of the trajectory's records and one line about the trajectory. The tables:
``migrations``; delivery: ``delivery_queue``.
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
"""Update a line at its place: the line does not move to the end."""
TIMEOUT, TRIES = 20.0, 30
"""Wait so many seconds for a transaction of another process, and try so many times."""
OffsetsOf = dict[int, list[int]]
"""Map segment -> ascending offsets of records in the segment."""


def _refuse_strange(path: Path) -> None:
    """Raise ``sqlite3.OperationalError`` for a state that would make SQLite touch other files."""
    if why := files.strange_database(path):
        raise sqlite3.OperationalError(why)


def _refuse_shared_pages(db: sqlite3.Connection, path: str | Path) -> None:
    """Raise ``sqlite3.DatabaseError`` for a state whose trees share pages or go in circles: a few KB would hold any
    number of rows, or a row of any size."""
    size = sum(os.path.getsize(file) for file in (str(path), f"{path}-wal") if os.path.exists(file))
    budget = iter(range(100 + size // 10_000))
    db.set_progress_handler(lambda: next(budget, None) is None, 10_000)  # the list of tables may be such a tree, too
    try:
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except MemoryError:  # SQLite's own error, about the size that a row claims
        raise sqlite3.DatabaseError("it is damaged: it asks for more memory than there is") from None
    finally:
        db.set_progress_handler(None, 0)
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {found}")


_NO_ID = "typeof(trace_id) != 'text' OR length(CAST(trace_id AS BLOB)) != 32 OR trace_id GLOB '*[^0-9a-f]*'"


def _refuse_strange_ids(db: sqlite3.Connection) -> None:
    """Raise ``sqlite3.DatabaseError`` for a state in which a trace has a name that is not an id."""
    for table in ("traces", "joins", "requests"):
        if db.execute(f"SELECT 1 FROM {table} WHERE {_NO_ID} LIMIT 1").fetchone():
            raise sqlite3.DatabaseError(f"it is damaged: a trace_id in {table} is no id")


class State:
    """Hold one connection to the state of a run. Not thread-safe. Only the holder of ``shipper.lock`` writes."""

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
        """Open or create the state of ``run_folder``. Raises ``sqlite3.Error`` if the folder cannot be written or
        autotrace did not write its state, and the subclass ``NewerDatabase``."""
        path = Path(run_folder, layout.STATE_DB)
        _refuse_strange(path)
        files.ensure(path)
        return cls(str(path))

    @classmethod
    def read_only(cls, run_folder: str | Path) -> State:
        """Open the state of ``run_folder`` without writing there. The state of an earlier release, or of a shipper that
        died, is copied into memory. Raises ``sqlite3.Error`` without a state that can be read so."""
        path = Path(run_folder, layout.STATE_DB).absolute()
        _refuse_strange(path)
        journal = Path(f"{path}-wal").exists()  # else nobody is writing, and SQLite would create a journal to read
        if journal and not shipper_alive(str(run_folder)):
            return cls._left_behind(path)
        state = cls.__new__(cls)
        address = f"{path.as_uri()}?mode=ro{'' if journal else '&immutable=1'}"
        state.db = sqlite3.connect(address, uri=True, timeout=TIMEOUT, isolation_level=None, check_same_thread=False)
        state.db.row_factory = sqlite3.Row
        try:
            if not shipper_alive(str(run_folder)):  # else this machine's own shipper wrote the state
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
        """Copy the state that a dead shipper left: SQLite writes into the journal's files even to read."""
        with tempfile.TemporaryDirectory(prefix="autotrace-") as folder:
            try:
                for name in (path.name, f"{path.name}-wal"):
                    with os.fdopen(files.reading(path.parent, name), "rb") as of, Path(folder, name).open("wb") as to:
                        shutil.copyfileobj(of, to)
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error
            return cls(str(Path(folder, path.name))).copy()

    def copy(self) -> State:
        """Copy the state into memory, where the copy may be written. This connection is closed."""
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
        """Begin a transaction, once no other process has a transaction. Raises ``sqlite3.OperationalError`` after
        minutes. No query may have unread rows."""
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
        """Return a remembered value."""
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Remember a value."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the remembered values whose key begins with ``prefix``; keys come without ``prefix``."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        rows = self.db.execute("SELECT key, value FROM meta WHERE key >= ? AND key < ?", (prefix, after))
        return {row[0][len(prefix) :]: row[1] for row in rows}

    # -- segments ------------------------------------------------------------------------------------------------------

    def segments(self) -> dict[str, sqlite3.Row]:
        """Return all segments by name."""
        return {row["name"]: row for row in self.db.execute("SELECT * FROM segments")}

    def removed(self, trace_id: str) -> bool:
        """Return whether a part of a trace was removed."""
        return self.db.execute("SELECT 1 FROM removed WHERE trace_id = ?", (trace_id,)).fetchone() is not None

    # -- traces --------------------------------------------------------------------------------------------------------

    def row(self, trace_id: str) -> TraceRow | None:
        """Return the line about a trace."""
        row = self.db.execute(f"SELECT {_ROW} FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return None if row is None else TraceRow.of(row)

    def rows(self, where: str = "1", values: Sequence[Any] = ()) -> list[TraceRow]:
        """Select the lines that satisfy ``where`` (SQL, never user input; values are bound)."""
        return [TraceRow.of(row) for row in self.db.execute(f"SELECT {_ROW} FROM traces WHERE {where}", values)]

    def put_rows(self, rows: Iterable[TraceRow]) -> None:
        """Store the lines about some traces."""
        self.db.executemany(_PUT_ROW, (row.values() for row in rows))

    def put_counts(self, rows: Iterable[TraceRow]) -> None:
        """Store the numbers of calls in existing lines, which further calls change."""
        counts = ((row.spans, row.turns, row.tool_calls, row.late_spans, row.trace_id) for row in rows)
        sql = "UPDATE traces SET spans = ?, turns = ?, tool_calls = ?, late_spans = ? WHERE trace_id = ?"
        self.db.executemany(sql, counts)

    def put_offsets(self, offsets_of: Mapping[tuple[str, int], array[int]]) -> None:
        """Store where records lie: (trace id, segment) -> offsets."""
        rows = ((*place, offsets.tobytes()) for place, offsets in offsets_of.items())
        self.db.executemany("INSERT INTO places VALUES (?, ?, ?)", rows)

    def offsets_of(self, trace_id: str) -> OffsetsOf:
        """Return where the records of a trace lie."""
        by_segment: dict[int, set[int]] = {}
        for segment, offsets in self.db.execute("SELECT segment, offsets FROM places WHERE trace_id = ?", (trace_id,)):
            by_segment.setdefault(segment, set()).update(array("q", offsets))
        return {segment: sorted(offsets) for segment, offsets in by_segment.items()}

    # -- groups --------------------------------------------------------------------------------------------------------

    def kept(self, group: str) -> str | None:
        """Return the decision about a group (``TraceRow.kept``)."""
        row = self.db.execute("SELECT kept FROM traces WHERE group_key = ? AND kept IS NOT NULL", (group,)).fetchone()
        return None if row is None else str(row[0])

    def group(self, group: str) -> list[TraceRow]:
        """Return all trajectories of a group."""
        return self.rows("group_key = ?", (group,))

    def decide(self, group: str, kept: str) -> None:
        """Store the decision about a group with its trajectories."""
        self.db.execute("UPDATE traces SET kept = ? WHERE group_key = ?", (kept, group))

    def count(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Return the number that the query ``sql`` (never user input) selects; 0 for NULL."""
        return int(self.db.execute(sql, values).fetchone()[0] or 0)


class Memory(UserDict[str, str]):
    """Store text by name for a sink, at once, so that the next process of the run has the text.

    The sink's thread writes, so each change opens a connection of its own; a run has a handful of changes.
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
