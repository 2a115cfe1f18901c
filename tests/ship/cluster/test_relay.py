"""Segments of other nodes arrive whole, once, and their writers live and die here as they do there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autotrace.run import layout, remote_node
from autotrace.ship.cluster.receiver import Receiver
from autotrace.ship.cluster.relay import Collector, Relay
from autotrace.spool.reader import writer_alive
from tests.waiting import DEADLINE, until

NAME = "node2-123-0a1b2c3d-0.seg"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    (tmp_path / "collector" / layout.SPOOL).mkdir(parents=True)
    made = Receiver(tmp_path / "collector", "127.0.0.1")
    made.url = made.url.replace(urlsplit(made.url).hostname or "", "127.0.0.1")
    yield made
    made.close()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "node2" / layout.SPOOL).mkdir(parents=True)
    return tmp_path / "node2"


def test_what_is_written_arrives_and_the_writer_lives_until_it_dies(receiver: Receiver, node: Path) -> None:
    here = Path(receiver._folder) / NAME
    writer = os.open(node / layout.SPOOL / NAME, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    fcntl.flock(writer, fcntl.LOCK_EX)
    relay = Relay(node, Collector(receiver.url, receiver.token))
    wrote = b""
    for _ in range(20):
        data = random.randbytes(random.randrange(1, 50_000))
        os.write(writer, data)
        wrote += data
        assert relay.round()
        assert here.read_bytes() == wrote and writer_alive(here.parent.parent, NAME)
    os.write(writer, b"last")
    os.close(writer)
    relay.round()
    assert here.read_bytes() == wrote + b"last" and not writer_alive(here.parent.parent, NAME)
    assert here.stat().st_mode & 0o777 == 0o600


def test_a_relay_that_begins_anew_continues_and_sends_nothing_twice(receiver: Receiver, node: Path) -> None:
    path = node / layout.SPOOL / NAME
    path.write_bytes(b"a" * 10_000)
    Relay(node, Collector(receiver.url, receiver.token)).round()
    path.write_bytes(b"a" * 10_000 + b"b" * 5_000)
    Relay(node, Collector(receiver.url, receiver.token)).round()
    assert (Path(receiver._folder) / NAME).read_bytes() == path.read_bytes()


def test_a_writer_that_begins_while_the_relay_ends_is_noticed(receiver: Receiver, node: Path) -> None:
    (node / layout.SPOOL / NAME).write_bytes(b"a")
    relay = Relay(node, Collector(receiver.url, receiver.token))
    relay.round()
    assert not relay.behind()
    (node / layout.SPOOL / NAME.replace("-0.", "-1.")).write_bytes(b"b")
    assert relay.behind()


@pytest.mark.parametrize(
    "name",
    ["../../evil.seg", "%2e%2e%2fevil-1-0a1b2c3d-0.seg", "evil", "a-1-0a1b2c3d-0.seg/..", "\u0663-1-0a1b2c3d-0.seg"],
)
def test_a_path_in_a_name_is_turned_away(receiver: Receiver, tmp_path: Path, name: str) -> None:
    collector = Collector(receiver.url, receiver.token)
    with pytest.raises(ConnectionError):
        collector.append(name, 0, True, b"x")
    with pytest.raises(ConnectionError):
        collector.append(NAME, -1, True, b"x")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == []


def test_a_connection_that_shows_no_token_is_closed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.ship.cluster.receiver.STRANGER", 0.0)
    parts = urlsplit(receiver.url)
    address = (parts.hostname or "", parts.port or 0)
    collector = Collector(receiver.url, receiver.token)
    collector.append(NAME, 0, True, b"x")
    idle, slow = socket.create_connection(address), socket.create_connection(address)
    slow.sendall(b"x" * 40)
    until(lambda: receiver.connections == 3)
    receiver.forget_the_silent()
    for connection in (idle, slow):
        connection.settimeout(DEADLINE)
        with contextlib.suppress(ConnectionError):
            assert len(connection.recv(100)) in (0, 32), "the nonce, if it went before the time was over"
            assert connection.recv(100) == b""
        connection.close()
    until(lambda: receiver.connections == 1)
    assert collector.append(NAME, 1, True, b"y") == 2, "the relay's own is still open"


def test_connections_are_bounded_and_a_relay_gets_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.ship.cluster.receiver.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("autotrace.ship.cluster.receiver.STRANGER", 0.0)
    (tmp_path / layout.SPOOL).mkdir()
    receiver = Receiver(tmp_path, "127.0.0.1")
    try:
        port = urlsplit(receiver.url).port or 0
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        until(lambda: receiver.connections == 3)
        collector = Collector(f"tcp://127.0.0.1:{port}", receiver.token)
        with pytest.raises(OSError):
            collector.append(NAME, 0, True, b"x")
        receiver.forget_the_silent()
        until(lambda: receiver.connections == 0)
        assert collector.append(NAME, 0, True, b"x") == 1
        for connection in idle:
            connection.close()
    finally:
        receiver.close()


def test_a_writer_whose_node_fell_silent_counts_as_dead(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    Collector(receiver.url, receiver.token).append(NAME, 0, True, b"x")
    folder = Path(receiver._folder).parent
    assert writer_alive(folder, NAME)
    monkeypatch.setattr("autotrace.ship.cluster.receiver.SILENCE", 0.0)
    receiver.forget_the_silent()
    assert not writer_alive(folder, NAME)


def test_only_the_files_of_living_writers_are_open(receiver: Receiver) -> None:
    collector = Collector(receiver.url, receiver.token)
    names = [f"node2-{number}-0a1b2c3d-0.seg" for number in range(40)]
    collector.append(names[0], 0, True, b"x")
    for name in names[1:]:
        collector.append(name, 0, True, b"x")
        collector.append(name, 1, False, b"y")
    assert collector.append(names[5], 0, False, b"xy") == 2  # said again: the answer is its size
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert [os.path.basename(path) for path in held if path.endswith(".seg")].count(names[0]) == 1
    assert not [path for path in held if os.path.basename(path) in names[6:]]


def test_a_node_with_a_limit_lets_go_of_what_the_collector_has(receiver: Receiver, node: Path) -> None:
    spool = node / layout.SPOOL
    for number in range(10):
        (spool / f"node2-{number}-0a1b2c3d-0.seg").write_bytes(b"x" * 10_000)
        os.utime(spool / f"node2-{number}-0a1b2c3d-0.seg", (number, number))
    writer = os.open(spool / "node2-0-0a1b2c3d-0.seg", os.O_WRONLY)  # the oldest is still being written
    fcntl.flock(writer, fcntl.LOCK_EX)
    Relay(node, Collector(receiver.url, receiver.token), limit=100_000).round()
    os.close(writer)
    left = sorted(path.name.split("-")[1] for path in spool.iterdir())
    assert left == ["0", "6", "7", "8", "9"]
    assert len(list(Path(receiver._folder).iterdir())) == 10


def test_the_plan_travels_in_a_variable(tmp_path: Path) -> None:
    text = '{"targets": ' + "[1, 2, 3], " * 500 + "}"
    packed = remote_node.packed_plan(text)
    assert re.fullmatch(r"[\w=-]+", packed), "Ray replaces $NAME in a runtime_env, and so would a shell"
    assert len(packed) < 400 and packed.isascii() and "\n" not in packed
    environ = {"AUTOTRACE_PLAN": str(tmp_path / "nowhere.json"), "AUTOTRACE_PLAN_DATA": packed}
    assert remote_node.plan_text(environ) == text


def test_a_collector_that_is_started_again_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / layout.SPOOL).mkdir()
    first = Receiver(tmp_path, "127.0.0.1")
    first.publish(tmp_path)
    first.close()
    second = Receiver(tmp_path, "127.0.0.1")
    second.close()
    assert (second.url, second.token) == (first.url, first.token)


def test_the_clock_of_another_node_is_told_with_each_request(receiver: Receiver) -> None:
    collector = Collector(receiver.url, receiver.token)
    collector.append(NAME, 0, True, b"x")
    ((boot, shift),) = receiver.clocks.items()
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(shift - (time.time_ns() - time.monotonic_ns())) < 1_000_000_000


def test_no_way_to_the_collector_is_said_once_and_at_once(node: Path) -> None:
    (node / layout.SPOOL / NAME).write_bytes(b"a" * 100)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        environ = {**os.environ, "AUTOTRACE_COLLECTOR": f"tcp://127.0.0.1:{nobody.getsockname()[1]}"}
        environ |= {"AUTOTRACE_TOKEN": "t", "AUTOTRACE": "0"}
        relay = subprocess.Popen(
            [sys.executable, "-m", "autotrace.ship.cluster.relay", str(node)],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert relay.stderr is not None
        said = relay.stderr.read()  # to its end: the relay lets go of the stream
        assert relay.poll() is None
        relay.kill()
        relay.wait()
    assert said.count("\n") == 1 and "cannot be reached" in said and str(node) in said
