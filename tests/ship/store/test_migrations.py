"""The state database's versions: newer ones are refused, a kill in the middle leaves what was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.run import layout
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.migrations import _BEFORE, STATE, NewerDatabase, migrate
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE

NEWEST = _BEFORE + len(STATE)

DIES = """
import os, sqlite3, sys
from autotrace.ship.store.migrations import migrate
left = int(sys.argv[2])

def statement(sql):
    global left
    left -= 1
    if left == 0:
        os._exit(9)

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.set_trace_callback(statement)
migrate(db)
"""


def content(path: Path) -> list[str]:
    """Everything in a database, as SQL."""
    db = sqlite3.connect(path)
    try:
        return list(db.iterdump())
    finally:
        db.close()


def test_lines_of_traces_that_end_together_are_on_the_same_pages(tmp_path: Path) -> None:
    """Where each line had a page of its own, writing pages was a quarter of what a trace of one call cost."""
    (tmp_path / "run").mkdir()
    state = State.of_run(tmp_path / "run")
    try:
        rows = [TraceRow(os.urandom(16).hex(), name="call", role="tool", start_ns=number) for number in range(4000)]
        with state:
            state.put_rows(rows)
        state.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ended = rows[1000:1256]
        with state:
            for row in ended:
                row.complete, row.profile = True, "{" + " " * 200 + "}"
                state.put_rows([row])
        page = state.db.execute("PRAGMA page_size").fetchone()[0]
        written = (tmp_path / "run" / f"{layout.STATE_DB}-wal").stat().st_size // page
        assert written < len(ended) // 2
        assert {row.trace_id for row in state.rows("complete")} == {row.trace_id for row in ended}
    finally:
        state.close()


def test_a_migration_killed_at_any_statement_leaves_the_old_state(tmp_path: Path) -> None:
    path = tmp_path / layout.STATE_DB
    sqlite3.connect(path).execute("PRAGMA journal_mode=WAL").fetchone()
    statements: list[str] = []
    db = sqlite3.connect(shutil.copy(path, tmp_path / "another"), isolation_level=None)
    db.set_trace_callback(statements.append)
    migrate(db)
    db.close()
    assert statements[-1] == "COMMIT"
    before = content(path)
    for number in (3, len(statements) // 2, len(statements) - 1, len(statements)):
        done = subprocess.run([sys.executable, "-c", DIES, str(path), str(number)], check=False, timeout=DEADLINE)
        assert done.returncode == 9
        assert content(path) == before
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db)
    assert db.execute("PRAGMA user_version").fetchone()[0] == NEWEST
    db.close()


def test_a_newer_state_is_refused_in_a_sentence_and_left_alone(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    trajectory(process)
    process.exit()
    ship(run, once=True)
    db = sqlite3.connect(run / layout.STATE_DB, isolation_level=None)
    db.execute("ALTER TABLE facts ADD COLUMN confidence REAL")
    db.execute(f"PRAGMA user_version = {NEWEST + 1}")
    db.close()
    before = content(run / layout.STATE_DB)
    with pytest.raises(NewerDatabase, match=r"written by a newer version of autotrace .*; upgrade autotrace"):
        ship(run, once=True)
    assert content(run / layout.STATE_DB) == before

    reader = of_run(run)  # the segments still tell what was recorded
    try:
        assert len(reader.select(roots=True)) == 1
        assert "newer version of autotrace" in " ".join(reader.run.status().notes)
    finally:
        reader.close()
    assert content(run / layout.STATE_DB) == before


def test_the_shipper_process_says_that_a_state_is_newer(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    db = sqlite3.connect(run / layout.STATE_DB, isolation_level=None)
    db.execute("PRAGMA user_version = 99")
    db.close()
    command = [sys.executable, "-m", "autotrace.ship", str(run)]
    done = subprocess.run(command, env={**os.environ, "AUTOTRACE": "0"}, check=False, timeout=DEADLINE)
    assert done.returncode == 1
    log = (run / layout.SHIPPER_LOG).read_text()
    assert "written by a newer version of autotrace" in log and "Traceback" not in log


def test_a_state_of_before_the_first_release_is_refused_in_a_sentence(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    db = sqlite3.connect(run / layout.STATE_DB, isolation_level=None)
    db.execute("CREATE TABLE meta (key TEXT)")
    for number in (0, _BEFORE):
        db.execute(f"PRAGMA user_version = {number}")
        with pytest.raises(sqlite3.DatabaseError, match=r"before 0\.1\.0 wrote it: remove it"):
            State.of_run(run)
    db.close()
