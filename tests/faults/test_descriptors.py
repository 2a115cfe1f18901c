"""The host does as it likes with the descriptors of its process: nothing of ours is written into a file of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from autotrace.spool.records import MAGIC
from tests.faults.conftest import Start
from tests.faults.outcome import outcome
from tests.waiting import DEADLINE


def test_closerange_and_a_database_in_place_of_our_segment(
    run: Path, tmp_path: Path, start: Start, note: Callable[..., None]
) -> None:
    database, log = tmp_path / "host.db", tmp_path / "host.log"
    process = start("closed_descriptors", database, log)
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and not err, err
    assert str(database) in out or str(log) in out, "the host got another number than ours; nothing was tested"
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM answers").fetchone() == (20,)
    assert log.read_bytes() == b"line\n" * 20 + b"end\n"
    for path in tmp_path.glob("host.*"):
        assert MAGIC not in path.read_bytes() and b"program.generate" not in path.read_bytes()
    found = outcome(run)
    assert found.row() == (40 * 8, 40 * 8, 0, 0, 0) and found.drops == {}
    assert len(list((run / "spool").iterdir())) == 2
    note("closerange, number in use again", found, "a second segment")
