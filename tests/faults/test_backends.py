"""Backends in every kind of trouble, over real HTTP: nothing is lost or comes twice, and it is said what is wrong.

All of them are in trouble at the same time, each with a run and a shipper process of its own: most of it is waiting.
"""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotrace.run.status import Status
from tests import ports
from tests.cases import some
from tests.faults.backends import CALLS, TRAJECTORIES, Trouble, into_otlp, into_weave
from tests.sinks.receiver import Receiver
from tests.waiting import DEADLINE, until
from tests.weave_server.fake_server import FakeServer, Fault

EVERYTHING = 8 * TRAJECTORIES
Note = Callable[..., None]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Trouble, FakeServer]]]:
    """Name -> a run whose shipper is at work against a server with such faults."""
    folder = tmp_path_factory.mktemp("troubled")
    faults = {
        "slow": [Fault(CALLS, delay=5.0)],
        "401": [Fault(CALLS, status=401)],
        "413": [Fault(CALLS, status=413, over_bytes=6_000, times=-1)],
        "429": [Fault(CALLS, status=429, headers={"Retry-After": "3"})],
        "500 after storing": [Fault(CALLS, status=500, after=True, times=4)],  # for seconds: status.json says so
        "dropped after storing": [Fault(CALLS, drop=True, after=True, times=2)],
    }
    made = {name: into_weave(folder, name.replace(" ", "-"), *given) for name, given in faults.items()}
    for trouble, _ in made.values():
        trouble.record().ship()
    until(lambda: not any([trouble.working() for trouble, _ in made.values()]))
    yield made
    for trouble, server in made.values():
        assert trouble.shipper is not None
        trouble.shipper.kill()
        trouble.shipper.wait()
        server.shutdown()


TROUBLES = ("slow", "413", "429", "500 after storing", "dropped after storing", "401")


@pytest.mark.parametrize("name", some(TROUBLES, "413", "500 after storing", "401"))
def test_a_server_in_trouble_gets_everything_once(
    troubled: dict[str, tuple[Trouble, FakeServer]], note: Note, name: str
) -> None:
    trouble, server = troubled[name]
    trouble.wait()
    found = trouble.outcome()
    note(f"backend: {name}", found, f"{len(server.paths(CALLS))} requests with calls")
    assert found.row() == (EVERYTHING, EVERYTHING, 0, 0, 0)
    status = Status.read(trouble.run)
    assert (status.state, status.pending) == ("done", 0) and not status.backends["weave"].rejected
    if name == "401":
        said = trouble.seen["blocked"].backends["weave"].error or ""
        assert "401" in said and "k" * 40 not in said
    if name in ("429", "500 after storing"):
        assert name[:3] in (trouble.seen["waiting"].backends["weave"].error or "")


def test_what_it_will_never_take_costs_itself_only(tmp_path: Path, note: Note) -> None:
    trouble, server = into_weave(tmp_path, "422")
    trouble.record()
    poison = sorted(_numbers(trouble))[11]
    server.faults = [Fault(CALLS, status=422, times=-1, containing=f'"number":{poison}'.encode())]
    trouble.ship()
    trouble.wait()
    found = trouble.outcome()
    assert found.row() == (EVERYTHING, EVERYTHING - 1, 0, 1, 0)
    (reason,) = Status.read(trouble.run).backends["weave"].rejected.values()
    assert "422" in reason
    note("backend: 422 for one call", found, "lost: that call; its reason is in the status")


def _numbers(trouble: Trouble) -> set[int]:
    from tests.faults.outcome import ledger

    return set(ledger(trouble.run))


def test_nobody_answers_for_a_while(tmp_path: Path, note: Note) -> None:
    """Nobody listens; then somebody takes the connection and never answers; then the server is there."""
    receivers: list[Receiver] = []
    trouble = into_otlp(tmp_path, "down", ports.reserved(), receivers)
    port = int(trouble.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rpartition(":")[2])
    trouble.record().ship()
    until(lambda: (trouble.look() or Status("", "")).pending == TRAJECTORIES and "waiting" in trouble.seen)
    assert trouble.seen["waiting"].lag_seconds > 0
    hole = socket.create_server(("127.0.0.1", port))
    hole.settimeout(DEADLINE)
    taken, again = hole.accept()[0], hole.accept()[0]  # it tried, waited for its time-out, and tried again
    assert trouble.outcome().delivered == 0 and trouble.shipper is not None and trouble.shipper.poll() is None
    for each in (hole, taken, again):
        each.close()
    receivers.append(Receiver(port))
    trouble.wait()
    found = trouble.outcome()
    assert found.row() == (EVERYTHING, EVERYTHING, 0, 0, 0)
    note("backend down, then black-holed", found, "then back")


def test_the_shipper_is_killed_at_random_moments(tmp_path: Path, note: Note) -> None:
    """While the run goes on and the server stores what it then does not acknowledge."""
    chance = random.Random(11)
    trouble, server = into_weave(tmp_path, "killed", Fault(CALLS, delay=0.15, times=-1))
    program = trouble.program(150)
    kills = 0
    while kills < 6:
        shipper = trouble.ship()
        before = len(server.requests)
        until(lambda before=before: len(server.requests) > before or program.poll() is not None)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.5))
        shipper.send_signal(signal.SIGKILL)
        kills += shipper.wait() == -signal.SIGKILL
    assert program.wait(DEADLINE) == 0
    trouble.ship()
    trouble.wait()
    found = trouble.outcome()
    assert found.row() == (1200, 1200, 0, 0, 0)
    note("shipper SIGKILL, 6 random moments", found)


def test_two_shippers_at_once(tmp_path: Path, note: Note) -> None:
    trouble, server = into_weave(tmp_path, "two", Fault(CALLS, delay=0.2, times=-1))
    trouble.record(20)
    first, second = trouble.ship(), trouble.ship()
    assert first.wait(DEADLINE) == second.wait(DEADLINE) == 0
    found = trouble.outcome()
    sent = sum(size for path, size, _ in server.requests if CALLS in path)
    assert found.row() == (160, 160, 0, 0, 0)
    again, other = into_weave(tmp_path, "one", Fault(CALLS, delay=0.2, times=-1))
    again.record(20)
    again.ship()
    again.wait()
    alone = sum(size for path, size, _ in other.requests if CALLS in path)
    assert sent < 1.2 * alone, "both delivered"
    note("two shippers at once", found, "one wins")
