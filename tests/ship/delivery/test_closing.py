"""What a run's end promises to who reads its files then."""

from __future__ import annotations

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
