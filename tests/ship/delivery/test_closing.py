"""What a run's end promises to who reads its files then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.run.status import Status
from autotrace.ship.shipper import ship
from autotrace.sinks.jsonl.sink import JsonlSink
from tests.ship.spools import Process, new_run, trajectory


def test_the_run_is_done_once_its_sinks_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink of JSON lines takes out what was replaced when it is closed; the launcher waits for ``done``."""
    run = new_run(tmp_path)
    states: list[str] = []
    close = JsonlSink.close

    def closed(self: JsonlSink) -> None:
        states.append(Status.read(run).state)
        close(self)

    monkeypatch.setattr(JsonlSink, "close", closed)
    process = Process(run)
    trajectory(process)
    process.exit()
    assert ship(run, once=True).state == "done"
    assert len(states) == 1 and states != ["done"]


def test_ship_ends_when_the_tables_cannot_be_written(tmp_path: Path) -> None:
    """A backend that takes what is in the tables would wait for ever."""
    run = new_run(tmp_path, backends=["jsonl", "parquet"])
    process = Process(run)
    trajectory(process)
    process.exit()
    (run / "tables").write_text("a file stands here")
    done = subprocess.run(
        [sys.executable, "-m", "autotrace", "ship", str(run)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and f"{run / 'tables'}" in done.stderr
    assert "jsonl: 1 delivered, 0 left" in done.stdout and "parquet: 0 delivered, 1 left" in done.stdout
