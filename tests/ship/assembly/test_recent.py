"""What was assembled a moment ago is handed over once, within a bound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from autotrace.run.info import RunInfo
from autotrace.ship.assembly import recent
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.assembly.recent import Assembled, Recent
from autotrace.ship.delivery.outbox import Outbox
from autotrace.ship.index.indexer import Indexer
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store.state import State
from autotrace.trajectory.model import Span
from tests.ship.spools import Process, new_run


def assembled(tokens: int = 1000, lasting: bool = True) -> Assembled:
    span = Span("1", None, "generate", "llm", "", 0, response_ids=[1] * tokens)
    return Assembled([span], [], [], [], lasting, 2 * tokens)


def test_it_is_handed_over_once() -> None:
    kept, one = Recent(1 << 20), assembled()
    kept.put("a", one)
    assert kept.take("a") is one and kept.take("a") is None
    kept.put("a", assembled(lasting=False))
    assert kept.take("a") is None


Begun = tuple[Indexer, Process, bytes, int]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """The indexer of a run that has read a whole trajectory, the process that wrote it, its id and its root."""
    run = new_run(tmp_path)
    process, state, trace = Process(run), State.of_run(run), os.urandom(16)
    info = RunInfo.read(run)
    indexer = Indexer(state, run, info, [Outbox(state, info)], ahead=8 << 20)
    root = process.open(trace, "trajectory")
    process.close(trace, root)
    indexer.round()
    yield indexer, process, trace, root
    state.close()


def test_what_grows_after_it_was_looked_at_is_assembled_again(begun: Begun) -> None:
    indexer, process, trace, root = begun
    assert indexer.settle(over=True) == 1
    process.close(trace, process.open(trace, "tool", root))
    indexer.round()
    grown = indexer.loader.load(trace.hex())
    assert grown is not None and [span.role for span in grown.spans] == ["trajectory", "tool"]


def test_what_could_not_be_looked_at_is_not_handed_over(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    indexer, process, trace, root = begun
    with monkeypatch.context() as context:
        context.setattr(Loader, "_described", Mock(side_effect=OSError("the file system fails")))
        indexer.settle(over=True)
    process.close(trace, process.open(trace, "tool", root))
    indexer.round()
    grown = indexer.loader.load(trace.hex())
    assert grown is not None and [span.role for span in grown.spans] == ["trajectory", "tool"]


def test_room_is_for_as_many_as_fit_and_what_nobody_came_for_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, size = Recent(1 << 20), assembled().size
    for number in range(100):
        kept.put(str(number), assembled())
    assert not kept.has_room
    held = [number for number in range(100) if kept.take(str(number)) is not None]
    assert held == list(range(len(held))) and abs(len(held) * size - (1 << 20)) <= size
    assert kept.has_room
    for number in range(100):
        kept.put(str(number), assembled())
    monkeypatch.setattr(recent, "SOON", -1.0)  # as if so long had passed
    assert kept.has_room
    kept.put("new", one := assembled())
    assert kept.take("new") is one and kept.take("0") is None
    assert Recent(0).has_room


def test_what_nobody_will_come_for_makes_room_at_once() -> None:
    kept = Recent(1 << 20)
    for number in range(100):
        kept.put(str(number), assembled())
    assert not kept.has_room
    kept.drop("0")
    assert kept.has_room and kept.take("0") is None


def test_arguments_and_results_take_room_too(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    process = Process(run)
    for _ in range(40):
        trace = os.urandom(16)
        root = process.open(trace, "trajectory", inputs={"messages": [{"role": "user", "content": "x" * 100_000}]})
        process.close(trace, root, output="y" * 100_000)
    process.exit()
    assert ship(run, once=True).state == "done"
    reader = of_run(run)
    state = State.of_run(run)
    loader = Loader(state, run, reader.run.info, 8 << 20)
    looked = [row for row in state.rows() if loader.recent.has_room and loader.look(row, final=True)]
    assert 15 <= len(looked) <= 25, "of 200 kB each, which may take twice as much"
