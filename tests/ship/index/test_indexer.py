"""How far the indexer goes ahead of delivery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotrace.run.info import RunInfo
from autotrace.ship.index import open_traces
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from tests.ship.spools import Process, new_run, trajectory


class Queue:
    """Takes what is complete, or leaves it."""

    kept = "all"

    def completed(self, row: TraceRow) -> None:
        row.kept = self.kept

    def bound(self, name: str, value: Any) -> None:
        pass

    def recorded(self, step: int) -> None:
        pass


@pytest.fixture
def indexer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Indexer:
    monkeypatch.setattr(open_traces, "GRACE", 0.0)
    run = new_run(tmp_path)
    process = Process(run)
    for number in range(100):
        trajectory(process, uid=f"u{number}")
    process.exit()
    made = Indexer(State.of_run(run), run, RunInfo.read(run), [Queue()], 1 << 20)
    while made.round():
        pass
    return made


def complete(indexer: Indexer) -> int:
    """As many as it completes without that any is delivered."""
    return sum(iter(lambda: indexer.settle(True), 0))


def test_it_completes_no_more_than_memory_has_room_for(indexer: Indexer) -> None:
    assert 20 < complete(indexer) < 60
    assert indexer.open_traces and not indexer.has_room


def test_what_stays_in_the_spool_takes_no_room(indexer: Indexer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "kept", "")
    assert complete(indexer) == 100 and indexer.has_room
