"""Each trajectory is assembled once for all destinations that keep up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.assembly.loader import Loader
from autotrace.ship.delivery import packing
from autotrace.ship.delivery.packing import MAX_BYTES, SHARED_BYTES, Packer
from autotrace.ship.store.delivery_queue import TABLES
from autotrace.ship.store.state import State
from autotrace.sinks.protocol import Sink
from autotrace.trajectory.model import Span, Trajectory

SIZE = MAX_BYTES // 4


class Loading:
    """A loader and a decoder of trajectories that take a quarter of a parcel each."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def refresh(self) -> None:
        pass

    def load_sized(self, trace_id: str) -> tuple[Trajectory, int]:
        self.loaded.append(trace_id)
        root = Span(span_id="1" * 16, parent_id="", name="run", key="run", role="trajectory", start_ns=1)
        return Trajectory(trace_id, "run", [root], {}), SIZE

    def add_texts(self, _: Any) -> None:
        pass


@pytest.fixture
def loading() -> Loading:
    return Loading()


@pytest.fixture
def packer(loading: Loading) -> Packer:
    made = Packer(State(":memory:"), cast(Loader, loading), cast(Decoder, loading))
    made.destinations = 2
    return made


def take(packer: Packer, name: str, *numbers: int) -> None:
    """A destination gets these."""
    wanted = [(f"{number:032x}", 1) for number in numbers]
    parcel, left_out = packer.parcel(cast(Sink, SimpleNamespace(name=name)), wanted)
    assert parcel is not None and [one.trace_id for one in parcel.trajectories] == [id for id, _ in wanted]
    assert left_out == []


def test_the_tables_wait_for_a_backend_and_each_is_assembled_once(packer: Packer, loading: Loading) -> None:
    assert not packer.ahead
    take(packer, TABLES, 0, 1, 2, 3)
    assert packer.ahead, "there is no room for another parcel"
    take(packer, "slow", 0, 1)
    assert not packer.ahead
    take(packer, TABLES, 4, 5, 6, 7)
    take(packer, "slow", 2, 3, 4, 5)
    take(packer, "slow", 6, 7)
    assert len(loading.loaded) == 8 and not packer.ahead


def test_a_backend_that_is_ahead_keeps_nobody_waiting(packer: Packer, loading: Loading) -> None:
    take(packer, "slow", 0, 1, 2, 3)
    assert not packer.ahead
    take(packer, TABLES, 0, 1, 2, 3)
    assert len(loading.loaded) == 4 and not packer.ahead


def test_the_tables_do_not_wait_for_long(packer: Packer, monkeypatch: pytest.MonkeyPatch) -> None:
    take(packer, TABLES, 0, 1, 2, 3)
    assert packer.ahead
    now = packing.time.monotonic()
    monkeypatch.setattr(packing.time, "monotonic", lambda: now + packing.PATIENCE)
    assert not packer.ahead
    take(packer, "quick", 4)
    assert not packer.ahead, "what another backend gets does not count"


def test_the_tables_do_not_wait_for_a_backend_that_has_fallen_behind(packer: Packer, loading: Loading) -> None:
    many = SHARED_BYTES // SIZE + 1
    for number in range(many):
        take(packer, TABLES, number)
    assert not packer.ahead, "what the backend asks for next was dropped"
    take(packer, "slow", 0)
    assert not packer.ahead and len(loading.loaded) == many + 1
    take(packer, "slow", many - 1)
    take(packer, TABLES, many, many + 1, many + 2, many + 3)
    take(packer, "slow", many)
    assert packer.ahead, "it has caught up"
