"""The state of a run: what a sink remembers, and what is seen when the disk is full."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from autotrace.ship.store.migrations import migrate
from autotrace.ship.store.state import Memory, State
from tests.waiting import until


def test_a_sinks_memory_keeps_whatever_way_it_is_changed(tmp_path: Path) -> None:
    with_state = State.of_run(tmp_path)
    memory = Memory(with_state, "backend:b:")
    memory["set"] = "1"
    memory.update({"updated": "2", "gone": "x", "popped": "y"})
    memory.setdefault("default", "3")
    memory.setdefault("set", "other")
    del memory["gone"]
    assert memory.pop("popped") == "y"
    with pytest.raises(KeyError):
        del memory["gone"]

    again = Memory(with_state, "backend:b:")
    assert dict(again) == dict(memory) == {"set": "1", "updated": "2", "default": "3"}
    again.clear()
    assert not Memory(with_state, "backend:b:")
    with_state.close()


def fill(db: sqlite3.Connection) -> None:
    """Write until SQLite says that the disk is full."""
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0] + 2}")
    for number in range(1000):
        db.execute("INSERT INTO meta VALUES (?, ?)", (f"k{number}", "x" * 4000))


def test_a_full_disk_is_the_error_that_is_seen_and_the_state_goes_on(tmp_path: Path) -> None:
    state = State.of_run(tmp_path)
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"), state:
        fill(state.db)
    with state:
        state.put_meta("after", "1")
    assert (state.meta("after"), state.meta("k0")) == ("1", None)
    state.close()


def test_a_transaction_begins_once_no_other_process_has_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, other = State.of_run(tmp_path), State.of_run(tmp_path)
    state.db.execute("PRAGMA busy_timeout = 200")

    def store() -> None:
        with state:
            state.put_meta("mine", "1")

    with other:
        other.put_meta("other", "1")
        thread = threading.Thread(target=store)
        thread.start()
        until(lambda: "another process" in caplog.text)
        assert other.meta("mine") is None
    thread.join()
    assert (state.meta("mine"), state.meta("other")) == ("1", "1")
    state.close()
    other.close()


def test_a_full_disk_during_a_migration(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    db.execute("PRAGMA max_page_count = 5")
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        migrate(db)
    assert not db.in_transaction
    assert db.execute("PRAGMA user_version").fetchone()[0] == 0
    db.close()


def test_a_commit_that_fails_leaves_no_transaction_open(tmp_path: Path) -> None:
    state = State.of_run(tmp_path)
    state.db.execute("PRAGMA foreign_keys = ON")
    state.db.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    state.db.execute("CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sqlite3.IntegrityError), state:
        state.db.execute("INSERT INTO b VALUES (1)")
    with state:
        state.put_meta("after", "1")
    assert state.meta("after") == "1"
    state.close()


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",), ("-shm",)], ids=str)
def test_the_state_of_a_shipper_that_died_is_read_and_nothing_is_written(tmp_path: Path, left: tuple[str, ...]) -> None:
    (tmp_path / "run").mkdir()
    alive = State.of_run(tmp_path / "run")
    alive.put_meta("before", "1")
    if "-wal" not in left:
        alive.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    died = tmp_path / "died"
    died.mkdir()
    for end in ("", *left):
        shutil.copy2(tmp_path / "run" / f"state.db{end}", died)
    alive.close()

    def written() -> dict[str, tuple[int, bytes]]:
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in died.iterdir()}

    before = written()
    state = State.read_only(died)
    assert state.meta("before") == "1"
    state.close()
    assert written() == before
