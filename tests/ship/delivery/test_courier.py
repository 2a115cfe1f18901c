"""How much goes at once, and what happens to the parcel behind one that failed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from autotrace.ship.delivery.courier import MAX_BATCH, Courier, ParcelReceipt
from autotrace.ship.delivery.packing import LeftOut, Packer, Parcel
from autotrace.sinks.protocol import Sink, Unavailable
from autotrace.trajectory.model import Span, Trajectory
from tests.waiting import DEADLINE


class Backend:
    """A sink that answers when it is told to."""

    name = "slow"
    sent = 0

    def __init__(self) -> None:
        self.given: list[list[str]] = []
        self.bound: list[str] = []
        self.answer = threading.Semaphore(0)
        self.fails = False

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        self.given.append([trajectory.trace_id for trajectory in trajectories])
        assert self.answer.acquire(timeout=DEADLINE)
        if self.fails:
            self.fails = False
            raise Unavailable("busy", retry_after=0.0)

    def bind(self, name: str, value: Mapping[str, Any]) -> None:
        self.bound.append(name)

    def page(self, trajectory: Trajectory) -> None:
        return None

    def close(self) -> None:
        pass


class Packing:
    """Parcels of ``room`` trajectories at most."""

    room = 10_000

    def __init__(self) -> None:
        self.packed = 0
        self.limited = False

    def limits(self, _: Any) -> bool:
        return self.limited

    def parcel(self, _: Any, wanted: Sequence[tuple[str, int]]) -> tuple[Parcel, LeftOut]:
        self.packed += 1
        parcel = Parcel([], {})
        for trace_id, version in wanted[: self.room]:
            root = Span(span_id="1" * 16, parent_id="", name="run", key="run", role="trajectory", start_ns=1)
            parcel.add(Trajectory(trace_id, "run", [root], {}), version, 1)
        return parcel, []


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def packing() -> Packing:
    return Packing()


@pytest.fixture
def courier(backend: Backend, packing: Packing) -> Iterator[Courier]:
    courier = Courier("slow", cast(Sink, backend), cast(Packer, packing))
    yield courier
    for _ in range(10):
        backend.answer.release()
    courier.close(30)


def wanted(count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(f"{number:032x}", 1) for number in range(first, first + count)]


def received(courier: Courier) -> ParcelReceipt:
    """What came of the oldest parcel."""
    courier._running[0][1].result(DEADLINE)
    receipt = courier.receipt()
    assert receipt is not None
    return receipt


def test_the_next_parcel_is_loaded_while_the_backend_is_at_the_one_before(
    courier: Courier, packing: Packing, backend: Backend
) -> None:
    courier.send(wanted(2))
    assert courier.ready()
    courier.send(wanted(2, 2))
    assert packing.packed == 2 and not courier.ready()
    backend.answer.release()
    assert len(received(courier).delivered) == 2
    assert courier.receipt() is None and courier.ready()


def test_a_budget_has_one_parcel_at_a_time(courier: Courier, packing: Packing) -> None:
    packing.limited = True
    courier.send(wanted(2))
    assert not courier.ready()


def test_a_backend_hears_of_the_run_in_the_thread_that_delivers(courier: Courier, backend: Backend) -> None:
    """Not before: until then it is asked for sizes by another one."""
    courier.bind("config", {})
    assert backend.bound == []
    courier.send(wanted(2))
    backend.answer.release()
    assert len(received(courier).delivered) == 2 and backend.bound == ["config"]
    courier.bind("tokenizer", {})
    courier.close(30)
    assert backend.bound == ["config", "tokenizer"]


def test_behind_a_parcel_that_failed_the_next_one_is_handed_back_untried(courier: Courier, backend: Backend) -> None:
    backend.fails = True
    courier.send(wanted(2))
    courier.bind("config", {})
    courier.send(wanted(2, 2))
    backend.answer.release()
    failed, untried = received(courier), received(courier)
    assert failed.problem is not None and untried.problem is None
    assert not failed.moved and not untried.moved, "both stay in the queue"
    assert courier.failures == 1 and len(backend.given) == 1
    assert backend.bound == ["config"], "what was reported with it is not lost"
    backend.answer.release()
    courier.send(wanted(4))
    assert len(received(courier).delivered) == 4 and courier.failures == 0


def test_parcels_grow_while_everything_fits_and_follow_what_fits(
    courier: Courier, backend: Backend, packing: Packing
) -> None:
    def delivered() -> int:
        backend.answer.release()
        courier.send(wanted(courier.batch))
        return len(received(courier).delivered)

    sizes = [delivered() for _ in range(7)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1] == MAX_BATCH
    packing.room = 40
    assert delivered() == 40
    assert 40 < courier.batch <= 60, "hardly more is taken from the queue than fits"
    backend.fails = True
    assert delivered() == 0
    assert courier.batch == 20
    assert [delivered() for _ in range(2)] == [20, 40]


def test_a_few_wait_for_others_where_a_delivery_costs_much(
    backend: Backend, packing: Packing, monkeypatch: pytest.MonkeyPatch
) -> None:
    courier, now = Courier("slow", cast(Sink, backend), cast(Packer, packing), gather=2.0), 100.0
    monkeypatch.setattr("autotrace.ship.delivery.courier.time.monotonic", lambda: now)
    assert not courier.waits(0)
    assert courier.waits(3) and not courier.waits(courier.batch), "enough for a parcel"
    assert courier.waits(3)
    now += 1.9
    assert courier.waits(4)
    now += 0.2
    assert not courier.waits(4), "no longer than that"
    backend.answer.release()
    courier.send(wanted(4))
    assert courier.waits(1), "the next ones wait anew"
    assert len(received(courier).delivered) == 4
    courier.close(30)
